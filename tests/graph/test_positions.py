"""Rotary angles that depend on the length, and learned positions, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from tests.effort import thinned

Array = np.ndarray[Any, Any]
F32, I32, I64 = DType.float32, DType.int32, DType.int64
AT = TensorType(I32, [1])
FLOATS = [DType.float32, DType.float16, DType.bfloat16]


def run(graph: Graph, *arrays: Array) -> list[Array]:
    return [
        one.to_numpy() for one in executor.find_executor().compile(graph, {})(*map(Tensor, arrays))
    ]


def test_angles_of_any_length() -> None:
    """One function for every length, short of the table, in it and beyond."""
    frequencies = np.random.default_rng(0).uniform(1e-4, 1, (4, 5)).astype(np.float32)
    kinds = [TensorType(I64, ["batch", "seq"]), TensorType(F32, [4, 5]), AT]
    options = {"original": 6, "factor": 1.5, "long_factor": 0.7}
    graph = Graph("angles", lambda t, f, p: ops.rope_angles(t, f, p, **options), kinds)
    for seq, position in ((1, 0), (6, 0), (7, 0), (3, 4), (1, 8), (2, 1000), (300, 100)):
        tokens, at = np.zeros((2, seq), np.int64), np.array([position], np.int32)
        row = frequencies[np.clip(position + seq - 6, 0, 3)]
        places = (position + np.arange(seq)).astype(np.float32)
        angle = (places[:, None] * row).astype(np.float64)  # rounded, as transformers rounds it
        factor = 0.7 if position + seq > 6 else 1.5
        cos, sin = run(graph, tokens, frequencies, at)
        np.testing.assert_allclose(cos, np.cos(angle) * factor, atol=3e-7)
        np.testing.assert_allclose(sin, np.sin(angle) * factor, atol=3e-7)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("hidden", thinned([1, 21, 64], 21))
def test_learned_positions(dtype: DType, hidden: int) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((9, hidden)).astype(np.float32).astype(dtype.to_numpy())
    kinds = [TensorType(F32, ["batch", "seq", hidden]), TensorType(dtype, [9, hidden]), AT]
    graph = Graph("add", ops.add_positions, kinds)
    for batch, seq, position in ((1, 1, 0), (2, 9, 0), (3, 2, 5), (1, 4, 7), (2, 3, -1), (1, 0, 0)):
        x = rng.standard_normal((batch, seq, hidden)).astype(np.float32)
        rows = np.clip(position + np.arange(seq), 0, 8)
        (result,) = run(graph, x, table, np.array([position], np.int32))
        np.testing.assert_array_equal(result, x + table[rows].astype(np.float32))


@pytest.mark.parametrize(
    ("call", "shapes", "message"),
    [
        (ops.add_positions, [["b", "s", 4], [9, 5]], r"table is \[positions, 4\]"),
        (ops.add_positions, [["b", 4], [9, 4]], r"\[batch, seq, hidden\]"),
        (ops.add_positions, [["b", "s", 4], [0, 4]], r"table is \[positions, 4\]"),
    ],
)
def test_operands_that_do_not_fit(call: Any, shapes: list[list[Any]], message: str) -> None:
    kinds = [TensorType(F32, shape) for shape in shapes]
    with pytest.raises(ValueError, match=message):
        Graph("g", call, [*kinds, AT])
    with pytest.raises(ValueError, match="both known"):
        Graph(
            "g",
            lambda t, f, p: ops.rope_angles(t, f, p, original=1),
            [TensorType(I64, ["b", "s"]), TensorType(F32, ["n", 2]), AT],
        )
