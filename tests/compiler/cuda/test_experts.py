"""Mixtures of experts on GPUs, run without one, against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.kernels.cuda import experts
from maxtool.compiler.kernels.cuda.matrix import PIECE
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from tests.compiler.cuda.harness import elements, numpy_type, resources, run
from tests.effort import thinned
from tests.simt import Program, program
from tests.simt.model import Simulation

SHARED_MEMORY = 99 << 10
FEW = settings(max_examples=20, deadline=None)


def choices(seed: int, count: int, number: int) -> np.ndarray:
    """Numbers of experts; half of them are one, some are no expert's, some have none."""
    random = np.random.default_rng(seed)
    chosen = random.integers(-2, number + 2, count)
    return np.where(random.random(count) < 0.5, number // 2, chosen)


def ordered(chosen: np.ndarray, number: int) -> list[np.ndarray]:
    result = [np.zeros(number + 1, np.int64), np.zeros(len(chosen), np.int64)]
    run("expert_order", chosen, into=result, experts=number)
    return result


@pytest.mark.long
@given(st.integers(1, 9), st.integers(0, 700))
@FEW
def test_choices_are_sorted(number: int, count: int) -> None:
    chosen = choices(0, count, number)
    starts, order = ordered(chosen, number)
    taken = np.clip(chosen, 0, number - 1)
    expected = np.argsort(taken, kind="stable")
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(starts, np.searchsorted(taken[expected], np.arange(number + 1)))


@cache
def product(dtype: str, **options: Any) -> Program:
    result = experts.expert_linear(SHARED_MEMORY, dtype, **options)
    return program(result, shared_memory=SHARED_MEMORY)


@pytest.mark.parametrize(
    ("dtype", "n", "k"),
    thinned(
        [("bfloat16", 34, 72), ("bfloat16", 80, 72), ("float32", 33, 35)],
        ("bfloat16", 34, 72),
        ("float32", 33, 35),
    ),
)
@pytest.mark.parametrize(
    ("rows", "used", "few"),
    thinned(
        [(3, 2, True), (3, 2, False), (50, 3, False), (200, 1, False), (0, 2, False)],
        (3, 2, True),
        (50, 3, False),
        (0, 2, False),
    ),
)
def test_expert_linear(dtype: str, n: int, k: int, rows: int, used: int, few: bool) -> None:
    number = 4
    x, w = elements(0, (rows, k), dtype), elements(1, (number, n, k), dtype)
    chosen = choices(2, rows * used, number)
    order = [] if few else ordered(chosen, number)
    y = np.full((rows * used, n), np.nan, np.float32)
    options = {"aligned": k % PIECE[dtype] == 0, "fours": n % 4 == 0}
    options |= {"wide": k < n, "few": few}
    product(dtype, **options)(x, w, chosen, *order, y)
    matrices = w[np.clip(chosen, 0, number - 1)].astype("f8")
    expected = np.einsum("ik,ink->in", np.repeat(x, used, 0).astype("f8"), matrices)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 2, 5), (3, 2, 300), (2, 1, 7), (2, 0, 7)])
def test_weighted_sum(shape: tuple[int, ...]) -> None:
    x, shares = elements(0, shape, "float32"), elements(1, shape[:2], "float32")
    y = run("weighted_sum", x, shares, into=np.full((shape[0], shape[2]), np.nan, np.float32))
    expected = (x.astype("f8") * shares[..., None]).sum(1)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", thinned(["float32", "bfloat16"], "bfloat16"))
def test_kernels_stay_in_registers(dtype: str) -> None:
    sizes = {"aligned": True, "fours": True, "wide": True}
    result = experts.expert_linear(SHARED_MEMORY, dtype, **sizes)
    for name, one in resources({"made": result}):
        assert not one.spills, name
        assert not one.stack, name


@pytest.mark.parametrize("seq", ["seq", 1])
def test_a_mixture(seq: str | int) -> None:
    """A gated layer of experts as a model has it: many tokens, and the one of a decode step."""
    width, inner, number, used = 16, 24, 5, 2
    bfloat16 = numpy_type("bfloat16")
    shapes = {"gate": (number, inner, width), "up": (number, inner, width)}
    shapes["down"] = (number, width, inner)
    values = {
        name: elements(i, shape, "bfloat16") for i, (name, shape) in enumerate(shapes.items())
    }
    weights = {name: Weight(name, DType.bfloat16, shape) for name, shape in shapes.items()}

    def forward(x: Any, chosen: Any, shares: Any) -> Any:
        gate, up = (ops.expert_linear(x, weights[name], chosen) for name in ("gate", "up"))
        return ops.weighted_sum(
            ops.expert_linear(ops.silu(gate) * up, weights["down"], chosen), shares
        )

    types = [
        TensorType(DType.float32, ["batch", seq, width]),
        TensorType(DType.int64, ["batch", seq, used]),
        TensorType(DType.float32, ["batch", seq, used]),
    ]
    graph = Graph("main", forward, types)
    result = Simulation().program([graph])
    length = 1 if seq == 1 else 21
    x, shares = (
        elements(3, (2, length, width), "float32"),
        elements(4, (2, length, used), "float32"),
    )
    chosen = choices(5, 2 * length * used, number).reshape(2, length, used)
    results = [value.type for value in graph.outputs]
    inputs = [Tensor(one) for one in (x, chosen, shares)]
    (actual,) = result.function("main", result.bind(values), results)(inputs)

    def times(rows: np.ndarray, name: str) -> np.ndarray:
        taken = values[name][np.clip(chosen, 0, number - 1)].astype("f8")
        return np.einsum("bsuk,bsunk->bsun", rows.astype(bfloat16).astype("f8"), taken)

    rows = np.repeat(x[:, :, None], used, 2)
    gate = times(rows, "gate")
    inside = (gate / (1 + np.exp(-gate)) * times(rows, "up")).astype("f4")
    expected = (times(inside, "down") * shares[..., None]).sum(2)
    error = np.linalg.norm(actual.to_numpy() - expected) / np.linalg.norm(expected)
    assert error < 1e-3  # a sum may round to the next bfloat16 before the last product
