"""Elements that are moved on GPUs, and powers of whole numbers, against NumPy."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.compiler.cuda.harness import INTEGERS, build, elements, resources, run
from tests.effort import thinned


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "dtype", thinned(["float32", "uint8", "uint16", "int64", "bool"], "float32", "bool")
)
def test_permute(rank: int, dtype: str) -> None:
    x = elements(rank, (3, 5, 2, 70)[-rank:], dtype)
    for dims in permutations(range(rank)):
        expected = x.transpose(dims)
        into = np.zeros(expected.shape, dtype)
        actual = run("permute", x, into=into, dtype=dtype, dims=dims)
        np.testing.assert_array_equal(actual, expected)


def test_nothing_to_permute() -> None:
    x = np.zeros((3, 0, 2), "f4")
    run("permute", x, into=np.zeros((2, 3, 0), "f4"), dtype="float32", dims=(2, 0, 1))


@pytest.mark.parametrize("places", ["int64", "int32", "uint8", "uint64"])
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_gather(places: str, dtype: str) -> None:
    x = elements(0, (3, 7, 5), dtype)
    inputs = [0, 6, 3, 3, 7, 100] if places.startswith("u") else [0, 6, -1, -7, 7, -8, 100, -100]
    at = np.array(inputs, places)
    if places == "uint64":
        at[-1] = 2**64 - 1
    from_first = [place + 7 if place < 0 else place for place in map(int, at)]
    expected = x[:, [min(max(place, 0), 6) for place in from_first]]
    into = np.zeros(expected.shape, dtype)
    actual = run("gather_rows", x, at, into=into, dtype=dtype, places=places)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("sizes", [(0, 7, 5), (3, 7, 0)])
def test_nothing_to_gather(sizes: tuple[int, ...]) -> None:
    outer, _, inner = sizes
    at, into = np.array([0, 1]), np.zeros((outer, 2, inner), "f4")
    run("gather_rows", np.zeros(sizes, "f4"), at, into=into, dtype="float32", places="int64")


@pytest.mark.parametrize("places", ["int64", "int32", "uint8"])
@pytest.mark.parametrize(("rows", "n", "m"), [(1, 1, 3), (4, 9, 30), (3, 300, 290), (2, 5, 0)])
def test_the_last_of_several_updates_stays(places: str, rows: int, n: int, m: int) -> None:
    random = np.random.default_rng(m)
    x, updates = elements(0, (rows, n), "float32"), elements(1, (rows, m), "float32")
    lowest = 0 if places == "uint8" else -n - 2
    at = random.integers(lowest, min(n + 2, 255), (rows, m)).astype(places)
    expected = x.copy()
    for i, j in np.ndindex(rows, m):
        if -n <= at[i, j] < n:
            expected[i, at[i, j]] = updates[i, j]
    into = np.full_like(x, 7)
    actual = run("scatter_rows", x, updates, at, into=into, dtype="float32", places=places)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64"])
@pytest.mark.parametrize(("rows", "n", "m"), [(1, 1, 3), (4, 9, 30), (3, 300, 290), (2, 5, 0)])
def test_several_updates_add_up_in_their_order(dtype: str, rows: int, n: int, m: int) -> None:
    random = np.random.default_rng(m)
    x, updates = (random.normal(0, 40, (rows, size)).astype("i4").astype(dtype) for size in (n, m))
    if dtype.startswith("float"):
        x, updates = x / 7, updates / 7
    at = random.integers(-n - 2, n + 2, (rows, m))
    expected = x.copy()
    i, j = np.nonzero((at >= -n) & (at < n))
    np.add.at(expected, (i, at[i, j]), updates[i, j])
    options = {"dtype": dtype, "places": "int64", "adds": True}
    actual = run("scatter_rows", x, updates, at, into=np.full_like(x, 7), **options)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("sizes", [(1,), (300,), (7, 50), (2, 3, 4, 5), (3, 1)])
def test_the_places_of_what_was_counted(sizes: tuple[int, ...]) -> None:
    chosen = np.random.default_rng(0).integers(0, 2, sizes)
    counts, expected = np.cumsum(chosen), np.argwhere(chosen)
    into = np.full(expected.shape, -1)
    actual = run("nonzero_places", counts, counts.reshape(sizes), into=into, rank=len(sizes))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("rows", "block", "m"), [(5, 3, 20), (4, 1, 9), (300, 40, 70), (3, 2, 0)])
def test_the_last_of_several_rows_stays(rows: int, block: int, m: int) -> None:
    x, updates = elements(0, (rows, block), "float16"), elements(1, (m, block), "float16")
    at = np.random.default_rng(m).integers(-2, rows + 2, m)
    expected = x.copy()
    for j, place in enumerate(at):
        if 0 <= place < rows:
            expected[place] = updates[j]
    actual = run("scatter_blocks", x, updates, at, into=np.full_like(x, 7), dtype="float16")
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_wrap_around(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x, y = (side.reshape(-1) for side in np.meshgrid(np.arange(-9, 10), np.arange(0, 70)))
    ends = np.array([limits.min, limits.max], dtype)
    x = np.concatenate([x.astype(dtype), ends])
    y = np.concatenate([y, [3, 3]]).astype(dtype)
    with np.errstate(over="ignore"):
        expected = x**y
    actual = run("integer_power", x, y, into=np.zeros_like(x), dtype=dtype)
    np.testing.assert_array_equal(actual, expected)


def test_powers_below_one() -> None:
    x, y = np.array([2, 1, -1, -1, 5], "i4"), np.array([-1, -3, -3, -2, -100], "i4")
    result = run("integer_power", x, y, into=np.zeros_like(x), dtype="int32")
    np.testing.assert_array_equal(result, [0, 1, -1, 1, 0])


def test_what_they_take_of_a_gpu() -> None:
    functions = {
        "permute": build("permute", dtype="float32", dims=(0, 2, 1, 3)),
        "gather": build("gather_rows", dtype="float32", places="int64"),
        "scatter": build("scatter_rows", dtype="float32", places="int64"),
        "added": build("scatter_rows", dtype="float32", places="int64", adds=True),
        "blocks": build("scatter_blocks", dtype="float32"),
        "nonzero": build("nonzero_places", rank=3),
        "power": build("integer_power", dtype="int64"),
    }
    result = dict(resources(functions))
    assert len(result) == 2 * (len(functions) + 1)  # scatters copy first, by one kernel
    assert not [name for name, one in result.items() if one.stack or one.spills]
