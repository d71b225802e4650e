"""Networks of convolutions, whose kernels are joined for any batch: bits as of kernels apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.joining.runs import Run
from maxtool.compiler.lowering import module_lowering
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor, ops
from maxtool.parity.evaluator import evaluate

Array = np.ndarray[Any, Any]
F32 = DType.float32
rng = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    values: Array = rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))
    return values.astype("f4")


# Padding and stride, Winograd's transforms, one channel each, and a gate of means of images.
WEIGHTS = {
    "stem": drawn(3, 3, 3, 24),
    "wide": drawn(3, 3, 24, 48),
    "each": drawn(3, 3, 1, 48),
    "squeeze": drawn(1, 1, 48, 8),
    "excite": drawn(1, 1, 8, 48),
    "narrow": drawn(1, 1, 48, 24),
    "head": drawn(10, 24),
}


def network(image: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    x = ops.relu(ops.conv2d(image, weights["stem"], stride=2, padding=1))
    wide = ops.relu(ops.conv2d(x, weights["wide"], padding=1))
    each = ops.silu(ops.conv2d(wide, weights["each"], padding=1, groups=48))
    means = each.mean(2).mean(1)
    gate = ops.relu(ops.conv2d(means, weights["squeeze"]))
    gate = ops.sigmoid(ops.conv2d(gate, weights["excite"]))
    narrow = x + ops.conv2d(each * gate, weights["narrow"])
    pooled = ops.max_pool2d(narrow, 3, 2, padding=1).mean(2).mean(1)
    return ops.linear(ops.reshape(pooled, (pooled.shape[0], 24)), weights["head"])


def graph(batch: int | str, side: int = 40) -> Graph:
    own = {name: Weight(name, F32, value.shape) for name, value in WEIGHTS.items()}
    return Graph("g", lambda x: [network(x, own)], [TensorType(F32, (batch, side, side, 3))])


def compiled(batch: int | str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    """The function, and how many kernels each joined kernel has."""
    counts: list[int] = []
    before = Run.joined

    def counted(run: Run, *results: Any) -> Any:
        counts.append(len(run.calls))
        return before(run, *results)

    monkeypatch.setattr(Run, "joined", counted)
    function = executor.find_executor().compile(graph(batch), WEIGHTS)
    return function, counts


@pytest.mark.parametrize("batch", ["n", 2])
def test_bits_are_those_of_kernels_apart(batch: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    joined, counts = compiled(batch, monkeypatch)
    # All but the product at the end, which is not that of several rows alone where n is not known.
    assert max(counts) >= 9
    assert len(counts) == 1
    monkeypatch.setattr(module_lowering, "is_convolutional", lambda _: False)
    apart, none = compiled(batch, monkeypatch)
    assert not none
    for count in (1, 2, 5) if batch == "n" else (2,):
        images = rng.standard_normal((count, 40, 40, 3)).astype("f4")
        result = joined(Tensor(images))[0].to_numpy()
        np.testing.assert_array_equal(result, apart(Tensor(images))[0].to_numpy())
        (exact,) = evaluate(graph(batch), [images], WEIGHTS)
        np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-5)


def test_memory_between_kernels_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten layers of the same size need what two of them have."""
    given: list[list[str]] = []
    before = Run.joined

    def counted(run: Run, *results: Any) -> Any:
        kernel, types = before(run, *results)
        given.append([str(each) for each in types])
        return kernel, types

    monkeypatch.setattr(Run, "joined", counted)
    weight = Weight("w", F32, (1, 1, 8, 8))

    def layers(x: Tensor) -> list[Tensor]:
        for _ in range(10):
            x = ops.relu(ops.conv2d(x, weight))
        return [x]

    deep = Graph("deep", layers, [TensorType(F32, ("n", 48, 48, 8))])
    run = executor.find_executor().compile(deep, {"w": drawn(1, 1, 8, 8)})
    assert given == [['R.Tensor((n * 18432,), dtype="float32")'] * 2]
    assert run(Tensor(np.ones((3, 48, 48, 8), "f4")))[0].shape == (3, 48, 48, 8)


def test_kernels_are_apart_where_a_size_is_not_that_of_a_tensor() -> None:
    """The batch is n + m, and what the convolutions take says neither."""
    own = {"w": Weight("w", F32, (1, 1, 8, 8)), "wide": Weight("wide", F32, (128, 4))}

    def layers(x: Tensor, y: Tensor) -> list[Tensor]:
        rows = ops.linear(ops.concat([x, y]), own["wide"])
        image = ops.reshape(rows, (rows.shape[0], 4, 4, 8))
        return [ops.relu(ops.conv2d(ops.relu(ops.conv2d(image, own["w"])), own["w"]))]

    values = {"w": drawn(1, 1, 8, 8), "wide": drawn(128, 4)}
    deep = Graph("deep", layers, [TensorType(F32, (name, 4)) for name in "nm"])
    run = executor.find_executor().compile(deep, values)
    inputs = [rng.standard_normal((count, 4)).astype("f4") for count in (2, 3)]
    (exact,) = evaluate(deep, inputs, values)
    got = run(*map(Tensor, inputs))[0].to_numpy()
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


def test_a_size_that_data_say_is_named_between_kernels() -> None:
    weight = Weight("w", F32, (1, 1, 8, 8))

    def layers(x: Tensor, count: Tensor) -> list[Tensor]:
        numbers = ops.counted(count, "count")
        first = ops.relu(ops.conv2d(x, weight))
        return [ops.relu(ops.conv2d(first, weight)), numbers + 1, first]

    values = {"w": drawn(1, 1, 8, 8)}
    inputs = [TensorType(F32, ("n", 6, 6, 8)), TensorType(DType.int64, ())]
    both = Graph("both", layers, inputs)
    run = executor.find_executor().compile(both, values)
    given = [rng.standard_normal((2, 6, 6, 8)).astype("f4"), np.array(5)]
    for got, exact in zip(run(*map(Tensor, given)), evaluate(both, given, values), strict=True):
        np.testing.assert_allclose(got.to_numpy(), exact, rtol=1e-4, atol=1e-5)
