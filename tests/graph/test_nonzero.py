"""The places of what is not zero, beside NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops

Array = np.ndarray[Any, Any]


NONZERO: list[Array] = [
    np.array([0.0, -0.0, np.nan, np.inf, 1e-45, -2], np.float32),
    np.array([[[0, 1], [2, 0]], [[0, 0], [0, 3]]], np.int8),
    np.array([[True, False, True]]),
    np.zeros((3, 4), np.float64),
    np.zeros((0, 4), np.float32),
    np.array([1, 0, 2], ml_dtypes.bfloat16),
]


@pytest.mark.parametrize("x", NONZERO, ids=lambda x: str(x.dtype))
def test_the_places_of_what_is_not_zero(x: Array) -> None:
    wanted = np.argwhere(x)
    result = ops.nonzero(Tensor(x), "any").to_numpy()
    kind = TensorType(DType.from_numpy(x.dtype), [f"d{axis}" for axis in range(x.ndim)])
    with Graph("g", input_types=[kind]) as graph:
        places = ops.nonzero(graph.inputs[0], "k")
        assert places.type == TensorType(DType.int64, ["k", x.ndim])
        graph.output(places, ops.shape_to_tensor(["k"]), places * 2 + 1)
    same, count, odd = executor.find_executor().compile(graph, {})(Tensor(x))
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(same.to_numpy(), wanted)
    np.testing.assert_array_equal(odd.to_numpy(), wanted * 2 + 1)
    assert result.dtype == same.to_numpy().dtype == np.int64
    assert count.to_numpy().tolist() == [len(wanted)]


class _Counted(dict[int, Callable[..., tuple[Tensor, ...]]]):
    """``nonzero`` of each rank, compiled when it is asked for."""

    def __missing__(self, rank: int) -> Callable[..., tuple[Tensor, ...]]:
        kind = TensorType(DType.int8, [f"d{axis}" for axis in range(rank)])
        graph = Graph("g", lambda x: [ops.nonzero(x, "k")], [kind])
        self[rank] = executor.find_executor().compile(graph, {})
        return self[rank]


COUNTED = _Counted()


@given(npst.arrays(np.int8, npst.array_shapes(max_dims=4, max_side=5), elements=st.integers(0, 1)))
@settings(max_examples=25, deadline=None)
def test_any_places(x: Array) -> None:
    np.testing.assert_array_equal(COUNTED[x.ndim](Tensor(x))[0].to_numpy(), np.argwhere(x))


def test_how_many_there_are_is_checked() -> None:
    x = Tensor(np.array([1, 0, 2], np.float32))
    with pytest.raises(
        ValueError, match=r"nonzero\(float32\[3\]\): 2 elements are not zero, not 3"
    ):
        ops.nonzero(x, 3)
    with pytest.raises(ValueError, match=r"nonzero\(float32\[\]\): needs at least one dimension"):
        ops.nonzero(Tensor(np.array(1, np.float32)), "k")
    kinds = [TensorType(DType.float32, ["n"]), TensorType(DType.float32, ["k"])]
    graph = Graph("g", lambda x, y: [ops.nonzero(x, "k") * 2, y], kinds)
    run = executor.find_executor().compile(graph, {})
    np.testing.assert_array_equal(run(x, Tensor(np.zeros(2, "f4")))[0].to_numpy(), [[0], [4]])
    with pytest.raises(
        ValueError, match="g: what is said of a shape is not true: nonzero: k elements"
    ):
        run(x, Tensor(np.zeros(3, "f4")))


@pytest.mark.peers
@pytest.mark.parametrize("x", NONZERO[:4], ids=lambda x: str(x.dtype))
def test_the_places_are_those_of_pytorch(x: Array) -> None:
    torch = pytest.importorskip("torch")
    result = ops.nonzero(Tensor(x), "k").to_numpy()
    np.testing.assert_array_equal(result, torch.nonzero(torch.from_numpy(x)).numpy())
