"""Activations rounded to eight bits or to bfloat16, where a weight has its kernels do so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from maxtool.nn import Linear, Module, ModuleList
from maxtool.nn.tracing import trace
from maxtool.parity import evaluate
from maxtool.parity.activation_rounding import rounded, rounded_to_bfloat16

Array = np.ndarray[Any, Any]
ROWS = TensorType(DType.float32, ["n", 64])
weight = Weight("w", DType.float32, [8, 64])
experts = Weight("w", DType.float32, [3, 8, 64])
CHOSEN = TensorType(DType.int64, ["n", 2])
BY_32 = partial(rounded, block=32)


def reference(x: Array, block: int) -> Array:
    """The same in the words of ggml's quantize_row_q8_0, an element after the other."""
    result = np.empty(x.shape)
    for row, out in zip(x, result, strict=True):
        for start in range(0, len(row), block):
            part = row[start : start + block]
            d = max(abs(value) for value in part) / 127
            out[start : start + block] = [d * round(value / d) if d else 0 for value in part]
    return result


@pytest.mark.parametrize("block", [32, 64])
def test_rounding_is_that_of_a_plain_loop(block: int) -> None:
    x = np.random.default_rng(0).standard_normal((5, 64))
    x[1], x[2, :block] = 0, 0
    np.testing.assert_allclose(rounded(x, block), reference(x, block), rtol=1e-12)


def test_steps_are_as_wide_as_a_127th_of_the_largest() -> None:
    x = np.random.default_rng(1).standard_normal((100, 32))
    error, step = np.abs(rounded(x, 32) - x), np.abs(x).max(-1, keepdims=True) / 127
    assert (error <= step / 2 * (1 + 1e-9)).all()
    # Uniform in a step: its root mean square is that of the step over the root of 12.
    assert np.sqrt((error**2).mean() / (step**2 / 12).mean()) == pytest.approx(1, abs=0.05)


def test_bfloat16_is_the_nearest_and_ties_go_to_even() -> None:
    """Steps of numbers from 1 to 2 are a 128th."""
    x = 1 + np.array([0, 0.5, 1.5, 2.5, 0.49, 0.51]) / 128
    np.testing.assert_array_equal(rounded_to_bfloat16(x), 1 + np.array([0, 0, 2, 2, 0, 1]) / 128)


USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": lambda x, _: ops.linear(x, weight),
    "transposed": lambda x, _: x @ weight.T,
    "experts": lambda x, chosen: ops.expert_linear(x, experts, chosen),
}


@pytest.mark.parametrize("use", USES)
def test_products_with_the_weight_round_and_others_do_not(use: str) -> None:
    rng = np.random.default_rng(2)
    x, chosen = rng.standard_normal((4, 64)), rng.integers(0, 3, (4, 2))
    shape = (3, 8, 64) if use == "experts" else (8, 64)
    graph = Graph("g", USES[use], [ROWS, CHOSEN])
    weights = {"w": rng.standard_normal(shape).astype(np.float32)}
    (exact,) = evaluate(graph, [x, chosen], weights)
    (again,) = evaluate(graph, [x, chosen], weights, {"other": BY_32})
    (rounding,) = evaluate(graph, [x, chosen], weights, {"w": BY_32})
    (expected,) = evaluate(graph, [rounded(x, 32), chosen], weights)
    np.testing.assert_array_equal(again, exact)
    np.testing.assert_array_equal(rounding, expected)
    assert 1e-4 < np.abs(rounding - exact).max() < 1


class Layers(Module):
    """Two layers of one form: a subgraph that is called with weights of either."""

    def __init__(self) -> None:
        self.layers = ModuleList([Linear(64, 64) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        """Go through both."""
        for layer in self.layers:
            x = layer(x)
        return x


def test_weights_of_a_shared_subgraph_round_each_by_itself() -> None:
    rng = np.random.default_rng(3)
    module = Layers()
    graph = trace(module, "g", [ROWS], module)
    x = rng.standard_normal((3, 64))
    weights = {f"layers.{i}.weight": rng.standard_normal((64, 64)) for i in range(2)}
    first, second = weights.values()
    (actual,) = evaluate(graph, [x], weights, {"layers.1.weight": BY_32})
    np.testing.assert_allclose(actual, rounded(x @ first.T, 32) @ second.T, rtol=1e-9)
