"""Products with vectors, as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops

SHAPES = [((4,), (4, 3)), ((2, 4), (4,)), ((4,), (4,)), ((4,), (5, 4, 3)), ((5, 2, 4), (4,))]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_vectors_are_rows_and_columns(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rows = np.random.default_rng(0)
    x, y = (rows.normal(size=shape).astype(np.float32) for shape in (left, right))
    result = Tensor(x) @ Tensor(y)
    assert result.shape == list((x @ y).shape)
    np.testing.assert_allclose(result.to_numpy(), x @ y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ops.matmul(Tensor(x), y).to_numpy(), x @ y, rtol=1e-5, atol=1e-5)


def test_vectors_in_a_graph() -> None:
    kinds = [TensorType(DType.float32, shape) for shape in (["k"], ["n", "k"])]
    graph = Graph("g", lambda v, m: m @ v, input_types=kinds)
    assert [value.shape for value in graph.outputs] == [["n"]]
    run: Any = executor.find_executor().compile(graph, {})
    v, m = np.ones(3, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(Tensor(v), Tensor(m))[0].to_numpy(), m @ v)


def test_widths_must_agree() -> None:
    with pytest.raises(ValueError, match=r"matmul.*4.*5"):
        Tensor.ones([4]) @ Tensor.ones([5, 2])
    with pytest.raises(ValueError, match="matmul"):
        Tensor(1.0) @ Tensor.ones([5])
