"""Operations on data that is here, computed by their definitions while a graph is traced."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, ops
from maxtool.graph.executor import operations_by
from maxtool.parity.folding import FOLDING, MOST_BYTES

ARRAY = np.array([[1.5, -2.25, 0.0], [7.0, np.inf, np.nan]], np.float32)


def folded(function: Callable[..., Tensor], *operands: Tensor) -> np.ndarray:
    with Graph("g"), operations_by(FOLDING):
        result = function(*operands)
    assert not result.is_traced
    return result.to_numpy()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x * 2.0 + 1.0, ARRAY * 2 + 1),
        (lambda x: x[:, ::-1], ARRAY[:, ::-1]),
        (lambda x: ops.pad(x, [0, 1, 2, 0]), np.pad(ARRAY, ((0, 1), (2, 0)))),
        (lambda x: ops.concat([x, x], 1), np.concatenate([ARRAY, ARRAY], 1)),
        (lambda x: ops.is_nan(x), np.isnan(ARRAY)),
        (lambda x: ops.cast(x, DType.bfloat16), ARRAY.astype(ml_dtypes.bfloat16)),
        (lambda x: ops.reshape(x, [3, -1]), ARRAY.reshape(3, 2)),
        (lambda x: ops.argsort(x), ARRAY.argsort(-1, kind="stable")),
    ],
)
def test_what_numpy_computes(function: Callable[..., Tensor], expected: np.ndarray) -> None:
    result = folded(function, Tensor(ARRAY))
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


def test_whole_numbers_wrap_around() -> None:
    result = folded(ops.add, Tensor(np.array([127], np.int8)), Tensor(np.array([1], np.int8)))
    assert result.dtype == np.int8
    assert result.tolist() == [-128]


def test_floats_are_rounded_once() -> None:
    values = np.full(1 << 12, 0.1, np.float32)
    result = folded(lambda x: ops.sum(x), Tensor(values))
    assert result.dtype == np.float32
    assert result[0] == np.float32(values.astype(np.float64).sum())


def test_what_is_traced_stays_traced() -> None:
    with Graph("g", input_types=[TensorType(DType.float32, [3])]) as graph, operations_by(FOLDING):
        result = graph.inputs[0] + Tensor(ARRAY)
    assert result.is_traced
    assert [node.op for node in graph.nodes] == ["add"]


def test_a_result_has_a_largest_size() -> None:
    with pytest.raises(ValueError, match=f"at most {MOST_BYTES}"):
        folded(lambda x: ops.broadcast_to(x, [1 << 40]), Tensor(ARRAY[0, :1]))


def test_what_needs_several_devices_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be computed in advance"):
        FOLDING.prepared("all_reduce", [], {}, [])
