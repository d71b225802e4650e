"""Updates that are added, beside NumPy's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops

Array = np.ndarray[Any, Any]


def _added(x: Array, updates: Array, at: Array, axis: int) -> Array:
    """NumPy adds in the order of the updates too."""
    narrow = x.dtype in (np.float16, ml_dtypes.bfloat16)
    result = x.astype(np.float32) if narrow else x.copy()
    places = list(np.indices(at.shape))
    places[axis] = np.where(at < 0, at + x.shape[axis], at)
    np.add.at(result, tuple(places), updates.astype(result.dtype))
    return result.astype(x.dtype)


ADDED = [DType.float32, DType.float64, DType.float16, DType.bfloat16, DType.int8, DType.uint64]


@pytest.mark.parametrize("dtype", ADDED)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_updates_of_one_place_add_up(dtype: DType, axis: int) -> None:
    random = np.random.default_rng(0)
    sizes = [4, 3, 5]
    x = random.integers(0, 9, sizes).astype(dtype.to_numpy())
    sizes[axis] = 7
    updates = (random.standard_normal(sizes) * 20 + 60).astype(dtype.to_numpy())
    at = random.integers(-x.shape[axis], x.shape[axis], sizes).astype(np.int32)
    wanted = _added(x, updates, at, axis)
    got = ops.scatter_add(Tensor(x), updates, at, axis).to_numpy()
    assert got.tobytes() == wanted.tobytes()
    names: list[int | str] = ["a", "b", "c"]
    kinds = [TensorType(dtype, [*names])]
    names[axis] = "m"
    kinds += [TensorType(dtype, [*names]), TensorType(DType.int32, [*names])]
    graph = Graph("g", lambda x, u, at: [ops.scatter_add(x, u, at, axis)], kinds)
    run = executor.find_executor().compile(graph, {})
    assert run(*map(Tensor, (x, updates, at)))[0].to_numpy().tobytes() == wanted.tobytes()
    outside = np.full_like(at, 99)
    np.testing.assert_array_equal(run(*map(Tensor, (x, updates, outside)))[0].to_numpy(), x)


@given(st.lists(st.tuples(st.integers(-4, 3), st.integers(-99, 99)), max_size=20))
@settings(max_examples=20, deadline=None)
def test_any_updates_add_up(pairs: list[tuple[int, int]]) -> None:
    at, updates = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    wanted = np.zeros(4, np.int64)
    np.add.at(wanted, at, updates)
    got = ops.scatter_add(Tensor(np.zeros(4, np.int64)), updates, at)
    np.testing.assert_array_equal(got.to_numpy(), wanted)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: ops.scatter_add(x, x, [[0, 0, 9]], 1), IndexError, "there is no index 9"),
        (lambda x: ops.scatter_add(x, x, [[0]], 0), ValueError, "one update for each place"),
        (lambda x: ops.scatter_add(x, x, x, 0), ValueError, "places are whole numbers"),
        (lambda x: ops.scatter_add(x, x, x, 2), ValueError, "there is no dimension"),
        (
            lambda x: ops.scatter_add(x.cast(DType.float16), x, [[0] * 3] * 2, 0),
            ValueError,
            "updates are float16; cast them",
        ),
        (
            lambda x: ops.scatter_add(x > 0, x > 0, [[0] * 3] * 2, 0),
            ValueError,
            "needs numbers, not bool",
        ),
    ],
)
def test_sums_that_do_not_fit(
    call: Callable[[Tensor], Tensor], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(Tensor(np.zeros((2, 3), np.float32)))


@pytest.mark.peers
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_are_those_of_pytorch(axis: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x, updates = random.standard_normal((5, 5)), random.standard_normal((5, 5))
    at = random.integers(0, 5, (5, 5))
    wanted = torch.from_numpy(x).scatter_add(axis, *map(torch.from_numpy, (at, updates)))
    got = ops.scatter_add(Tensor(x), Tensor(updates), Tensor(at), axis)
    np.testing.assert_allclose(got.to_numpy(), wanted.numpy(), rtol=1e-12)
