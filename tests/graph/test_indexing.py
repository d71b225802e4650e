"""Indices beside NumPy's results for the same index, of known, named and empty sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import Dim, Graph, Tensor, TensorType, executor, ops
from maxtool.graph.limits import least_sizes
from maxtool.nn.eager import Module
from tests.effort import thinned

Array = np.ndarray[Any, Any]
F32 = DType.float32

bounds = st.none() | st.integers(-5, 5)
slices = st.builds(slice, bounds, bounds, st.none() | st.sampled_from([1, 2, -1, -3]))
basic = slices | st.integers(-3, 3) | st.none()


@st.composite
def advanced(draw: st.DrawFn) -> Array:
    shape = draw(st.sampled_from([(), (1,), (2,), (3, 2), (0,)]))
    numbers = st.integers(-2, 1)
    values = draw(st.lists(numbers, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return np.array(values, draw(st.sampled_from([np.int64, np.int32, np.int8]))).reshape(shape)


@st.composite
def indices(draw: st.DrawFn) -> tuple[Any, ...]:
    entries: list[Any] = draw(st.lists(basic | advanced(), max_size=4))
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
    return tuple(entries)


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@given(shapes, indices())
def test_what_numpy_gives(shape: tuple[int, ...], index: tuple[Any, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    try:
        wanted = x[index]
    except IndexError:
        with pytest.raises((IndexError, ValueError)):
            Tensor(x)[index]
        return
    result = Tensor(x)[index].to_numpy()
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    np.testing.assert_array_equal(result, wanted)


@given(st.data())
@settings(max_examples=25)
def test_masks(data: st.DataObject) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    first, depth = data.draw(st.sampled_from([(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]))
    sizes = x.shape[first : first + depth]
    flat = data.draw(st.lists(st.booleans(), min_size=prod(sizes), max_size=prod(sizes)))
    mask = np.array(flat).reshape(sizes)
    index = (slice(None),) * first + (mask,)
    np.testing.assert_array_equal(Tensor(x)[index].to_numpy(), x[index])
    tensors = (slice(None),) * first + (Tensor(mask),)
    np.testing.assert_array_equal(Tensor(x)[tensors].to_numpy(), x[index])


TRACED: list[Any] = [
    np.s_[1:],
    np.s_[:-1],
    np.s_[:2],
    np.s_[-2:],
    np.s_[::-1],
    np.s_[::2],
    np.s_[1:-1:2, ::-2],
    np.s_[-2::-1],
    np.s_[3:0:-2],
    np.s_[:, 1:3],
    np.s_[-1],
    np.s_[2, -1],
    np.s_[..., None, -1],
    np.s_[None, 1:, None, 0],
    np.s_[[0, -1]],
    np.s_[:, [2, 0, 0]],
    np.s_[[0, 1], [2, -1]],
    np.s_[[[0], [1]], [0, 1]],
    np.s_[1:, [0, 1]],
    np.s_[np.array([True, False, True]).nonzero()[0]],
    np.s_[:, np.array([True, False, True])],
    np.s_[0:0],
    np.s_[...],
]


def test_a_dimension_with_a_name() -> None:
    kind = TensorType(F32, ["n", 3])
    graph = Graph("g", lambda x: [x[index] for index in TRACED], [kind])
    run = executor.find_executor().compile(graph, {})
    assert least_sizes(graph) == {"n": 4}
    for size in (4, 5, 9):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        for index, got in zip(TRACED, run(Tensor(x)), strict=True):
            np.testing.assert_array_equal(got.to_numpy(), x[index], err_msg=str(index))


def test_places_that_the_graph_computes() -> None:
    """Accept indices computed from the tensor itself; those out of range mean the nearest."""
    kinds = [TensorType(F32, ["n", "m"]), TensorType(DType.int32, ["k"])]
    graph = Graph("g", lambda x, at: [x[at], x[:, at + 0], x[at, at], x[0, at]], kinds)
    run = executor.find_executor().compile(graph, {})
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    at = np.array([0, -1, 2], np.int32)
    for got, wanted in zip(run(x_ := Tensor(x), Tensor(at)), _places(x, at), strict=True):
        np.testing.assert_array_equal(got.to_numpy(), wanted)
    got = run(x_, Tensor(np.array([99, -99], np.int32)))[0]
    np.testing.assert_array_equal(got.to_numpy(), x[[2, 0]])
    assert run(x_, Tensor(np.zeros(0, np.int32)))[0].shape == [0, 4]


def _places(x: Array, at: Array) -> list[Array]:
    return [x[at], x[:, at], x[at, at], x[0, at]]


class Shifted(Module[[Tensor], Tensor]):
    def forward(self, x: Tensor) -> Tensor:
        return ops.concat([x, x])[5:]


def test_a_call_that_is_too_short_is_refused() -> None:
    compiled = Shifted().compile(TensorType(F32, ["n"]))
    np.testing.assert_array_equal(
        compiled(np.arange(3, dtype=np.float32)).to_numpy(), np.array([2], np.float32)
    )
    with pytest.raises(ValueError, match=r"expected 'n' to be at least 3, got 2"):
        compiled(np.zeros(2, np.float32))


EACH_WIDTH = (DType.bool, DType.bfloat16, DType.int32, DType.float64, DType.float8_e5m2)


@pytest.mark.parametrize("dtype", thinned(DType, *EACH_WIDTH), ids=lambda dtype: dtype.value)
def test_every_type(dtype: DType) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype.to_numpy())
    moved = [x[::-1, 1], x[[1, 0]], x[[0, 1], [1, 2]]]
    tensor = Tensor(x)
    for got, wanted in zip(
        [tensor[::-1, 1], tensor[[1, 0]], tensor[[0, 1], [1, 2]]], moved, strict=True
    ):
        assert got.to_numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (5, IndexError, "slice(float32[2, 3]): index 5 is out of range for a dimension of 2"),
        ((0, 0, 0), IndexError, "slice(float32[2, 3]): 3 indices for a tensor of rank 2"),
        ((..., ...), IndexError, "has ... once"),
        ([5], IndexError, "no index 5 in dimensions [2]"),
        (([0], [9]), IndexError, "no index 9 in dimensions [3]"),
        ("a", TypeError, "not str"),
        (1.5, TypeError, "not float"),
        (True, TypeError, "not bool"),
        (np.array([0.5]), TypeError, "not float64"),
        (slice(None, None, 0), ValueError, "slice(float32[2, 3]): slice step cannot be zero"),
        (slice("a"), TypeError, "str"),
        (([0, 1], [0, 1, 2]), ValueError, "do not broadcast"),
        (np.zeros(3, bool), IndexError, "mask"),
    ],
)
def test_indices_that_do_not_fit(index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        Tensor.zeros([2, 3])[index]


def test_a_mask_that_is_traced() -> None:
    with pytest.raises(ValueError, match="use where, or a mask that is known"):
        Graph("g", lambda x: x[x > 0], [TensorType(F32, ["n"])])


def test_iteration() -> None:
    rows = list(Tensor(np.arange(6).reshape(3, 2)))
    assert [row.to_numpy().tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]


GATHERED: list[tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Array, Array], Array]]] = [
    (lambda x, at: ops.gather(x, at, 0), lambda x, at: x.take(at, 0)),
    (lambda x, at: ops.gather(x, at, -1), lambda x, at: x.take(at, -1)),
    (
        lambda x, at: ops.gather_nd(x, ops.unsqueeze(at, -1)),
        lambda x, at: x[at],
    ),
    (
        lambda x, at: ops.gather_nd(x, ops.stack([at, at], axis=-1)),
        lambda x, at: x[at, at],
    ),
    (
        lambda x, at: ops.gather_nd(x, ops.reshape(at[:2], [2, 1, 1]), batch_dims=1),
        lambda x, at: np.stack([x[0, at[:1]], x[1, at[1:2]]]),
    ),
]


@pytest.mark.parametrize("places", thinned([np.int64, np.int32, np.uint8], np.int32))
def test_gathering(places: Any) -> None:
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    at = np.array([[1, 0, 1], [0, 0, 1]], places)
    eager = [ours(Tensor(x), Tensor(at[0])).to_numpy() for ours, _ in GATHERED]
    kinds = [TensorType(DType.int16, [2, "b", "c"]), TensorType(DType.from_numpy(places), ["k"])]
    graph = Graph("g", lambda x, at: [ours(x, at) for ours, _ in GATHERED], kinds)
    traced = executor.find_executor().compile(graph, {})(Tensor(x), Tensor(at[0]))
    for (_, numpy), left, right in zip(GATHERED, eager, traced, strict=True):
        np.testing.assert_array_equal(left, numpy(x, at[0]))
        np.testing.assert_array_equal(right.to_numpy(), left)


def _put(x: Array, updates: Array, at: Array, axis: int) -> Array:
    result = x.copy()
    np.put_along_axis(result, at, updates, axis)
    return result


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16, DType.int64, DType.bool])
@pytest.mark.parametrize("axis", [0, -1])
def test_scattering(dtype: DType, axis: int) -> None:
    x = np.zeros((3, 4), dtype.to_numpy())
    at = np.array([[0, -1, 2, 1]] * 2 if axis == 0 else [[3, -4], [1, 2], [0, 1]], np.int32)
    updates = np.arange(1, at.size + 1).reshape(at.shape).astype(dtype.to_numpy())
    wanted = _put(x, updates, at, axis)
    got = ops.scatter(Tensor(x), updates, at, axis).to_numpy()
    assert got.tobytes() == wanted.tobytes()
    named = {0: (["n", 4], ["m", 4]), -1: (["m", "n"], ["m", "k"])}[axis]
    types = [TensorType(dtype, named[0]), TensorType(dtype, named[1])]
    types.append(TensorType(DType.int32, named[1]))
    graph = Graph("g", lambda x, u, at: [ops.scatter(x, u, at, axis)], types)
    run = executor.find_executor().compile(graph, {})
    assert run(*map(Tensor, (x, updates, at)))[0].to_numpy().tobytes() == wanted.tobytes()
    outside = np.full_like(at, 99)
    np.testing.assert_array_equal(run(*map(Tensor, (x, updates, outside)))[0].to_numpy(), x)


def test_scattering_blocks() -> None:
    x = np.zeros((3, 2, 2), ml_dtypes.bfloat16)
    at = np.array([[2], [-3], [2]], np.int64)
    updates = np.arange(1, 13).reshape(3, 2, 2).astype(x.dtype)
    wanted = x.copy()
    wanted[2], wanted[0] = updates[2], updates[1]
    got = ops.scatter_nd(Tensor(x), updates, at).to_numpy()
    assert got.tobytes() == wanted.tobytes()
    kinds = [TensorType(DType.bfloat16, ["n", 2, 2]), TensorType(DType.bfloat16, ["m"])]
    kinds.append(TensorType(DType.int64, ["m", 3]))
    graph = Graph("g", lambda x, u, at: [ops.scatter_nd(x, u, at)], kinds)
    run = executor.find_executor().compile(graph, {})
    points = np.array([[0, 1, 1], [-1, 0, 1], [9, 0, 0]])
    wanted = x.copy()
    wanted[0, 1, 1], wanted[2, 0, 1] = 5, 6
    given_updates = np.array([5, 6, 7]).astype(x.dtype)
    got = run(Tensor(x), Tensor(given_updates), Tensor(points))[0].to_numpy()
    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: ops.gather(x, [7], 0),
            IndexError,
            "gather: there is no index 7 in dimensions [2]",
        ),
        (
            lambda x: ops.gather(x, [0], 2),
            ValueError,
            "gather(float32[2, 3]): there is no dimension",
        ),
        (
            lambda x: ops.gather(x, [0.5], 0),
            ValueError,
            "gather(float32[2, 3], float32[1]): places",
        ),
        (lambda x: ops.gather_nd(x, [[0, 9]]), IndexError, "gather_nd: there is no index 9"),
        (lambda x: ops.gather_nd(x, [[0, 0, 0]]), ValueError, "a place has 1 to 2 numbers"),
        (lambda x: ops.gather_nd(x, [[0]], 3), ValueError, "no 3 dimensions in both"),
        (lambda x: ops.scatter(x, x, [[0, 0, 9]], 1), IndexError, "scatter: there is no index 9"),
        (lambda x: ops.scatter(x, x, [[0]], 0), ValueError, "one update for each place"),
        (lambda x: ops.scatter(x, [[1.0]], [[0]], 0), ValueError, "only dimension 0"),
        (lambda x: ops.scatter_nd(x, x, [[0]]), ValueError, "the updates are [1, 3]"),
        (
            lambda x: ops.scatter_nd(x, np.zeros((1, 3)), [[0]]),
            ValueError,
            "scatter_nd(float32[2, 3], float64[1, 3], int64[1, 1]): updates are float32",
        ),
    ],
)
def test_places_that_do_not_fit(
    call: Callable[[Tensor], Tensor], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(Tensor.zeros([2, 3]))


def test_a_size_with_a_name_is_none_of_a_number() -> None:
    with pytest.raises(TypeError, match="symbolic"):
        Tensor.zeros([3])[: Dim("n")]
