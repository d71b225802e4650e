"""Primitives of searches against definitions in scalars, one number at a time."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool.quantization import block, primitives, uneven
from tests.effort import examples

ANY = st.floats(width=32, allow_nan=False)
FINITE = st.floats(-(2.0**60), 2.0**60, width=32)
FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, -2.5])
TABLES = st.tuples(st.integers(1, 40), st.integers(1, 5))


def same_bits(left: np.ndarray, right: np.ndarray) -> None:
    np.testing.assert_array_equal(left.view(np.uint32), right.view(np.uint32))


def nearest_int(value: np.float32) -> int:
    """ggml's function: the low bits of a sum."""
    with np.errstate(all="ignore"):
        bits = struct.pack("<f", value + np.float32(12582912))
    return (struct.unpack("<I", bits)[0] & 0x007F_FFFF) - 0x0040_0000


@given(values=hnp.arrays(np.float32, st.integers(1, 20), elements=ANY))
@settings(max_examples=examples(100, 1000), deadline=None)
def test_rounding_is_that_of_the_low_bits(values: np.ndarray) -> None:
    expected = [nearest_int(value) for value in values]
    with np.errstate(all="ignore"):
        assert primitives.nearest(values.copy()).tolist() == expected


def test_rounding_of_halves_and_of_what_is_not_finite() -> None:
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 4194302.5], np.float32)
    np.testing.assert_array_equal(primitives.nearest(halves.copy()), np.rint(halves))
    odd = np.array([np.inf, -np.inf, np.nan], np.float32)
    assert primitives.nearest(odd).tolist() == [-(2.0**22), -(2.0**22), 0]


@given(data=st.data())
@settings(max_examples=examples(50, 500), deadline=None)
def test_sums_are_in_order(data: st.DataObject) -> None:
    """Any number of columns: NumPy adds in another order where there is one."""
    terms = data.draw(hnp.arrays(np.float32, TABLES, elements=st.one_of(FEW, FINITE)))
    sums, first = np.zeros(terms.shape[1], np.float32), terms[0].copy()
    for row in terms:
        sums = sums + row
    for row in terms[1:]:
        first = first + row
    same_bits(primitives.total(terms), sums)
    same_bits(primitives.from_first(terms), first)


@pytest.mark.parametrize("columns", [1, 2, 7, 8, 16, 33, 4000])
@pytest.mark.parametrize("rows", [8, 16, 32, 256])
def test_sums_of_many_columns_are_in_order(rows: int, columns: int) -> None:
    terms = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    sums = np.zeros(columns, np.float32)
    for row in terms:
        sums += row
    same_bits(primitives.total(terms), sums)


@given(data=st.data())
@settings(max_examples=examples(50, 500), deadline=None)
def test_extremes_are_the_first_ones(data: st.DataObject) -> None:
    values = data.draw(hnp.arrays(np.float32, TABLES, elements=st.one_of(FEW, FINITE)))
    least, most = primitives.extremes(values)
    for column, largest, low, high, positive in zip(
        values.T,
        primitives.first_largest(values),
        least,
        most,
        primitives.largest(values),
        strict=True,
    ):
        numbers = column.tolist()
        assert str(largest) == str(np.float32(max(numbers, key=abs) or 0.0))
        assert str(low) == str(np.float32(min(numbers)))
        assert str(high) == str(np.float32(max(numbers)))
        assert str(positive) == str(np.float32(max(0.0, *numbers) or 0.0))


def best_index(value: np.float32) -> int:
    """ggml's binary search for the nearest of ascending values."""
    known = uneven.values().astype(np.float32)
    if value <= known[0]:
        return 0
    if value >= known[-1]:
        return len(known) - 1
    low, high = 0, len(known) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if value < known[middle] else (middle, high)
    return high - 1 if value - known[high - 1] < known[high] - value else high


def test_nearest_values_are_those_of_ggmls_search() -> None:
    known = uneven.values().astype(np.float32)
    exact = np.concatenate([known, (known[:-1] + known[1:]) / 2, [0, 1e9, -1e9, 1e-40]])
    exact = exact.astype(np.float32)
    sides = [np.nextafter(exact, np.float32(side)) for side in (-np.inf, np.inf)]
    random = np.random.default_rng(0).uniform(-130, 120, 5000).astype(np.float32)
    odd = np.array([np.nan, np.inf, -np.inf], np.float32)
    values = np.concatenate([exact, *sides, random, odd])
    codes = primitives.nearest_codes(values, uneven.values())
    assert codes.tolist() == [best_index(value) for value in values]


@pytest.mark.parametrize(("bits", "run"), [(1, 32), (2, 32), (2, 4), (4, 32), (4, 64), (4, 1)])
@given(data=st.data())
@settings(max_examples=examples(10, 50), deadline=None)
def test_packing_is_undone_by_unpacking(bits: int, run: int, data: st.DataObject) -> None:
    elements = run * (8 // bits) * data.draw(st.integers(1, 3))
    shape = elements, data.draw(st.integers(1, 3))
    quants = data.draw(hnp.arrays(np.uint8, shape, elements=st.integers(0, (1 << bits) - 1)))
    packed = block.pack(quants, bits=bits, run=run)
    np.testing.assert_array_equal(block.unpack(packed.T, bits=bits, run=run), quants.T)


@pytest.mark.parametrize("elements", [16, 32])
def test_groups_are_columns(elements: int) -> None:
    columns = np.arange(256 * 3).reshape(256, 3)
    groups = block.grouped(columns, elements)
    np.testing.assert_array_equal(groups[:, 3 * 2 + 1], columns[2 * elements : 3 * elements, 1])
    np.testing.assert_array_equal(block.ungrouped(groups, 3), columns)
