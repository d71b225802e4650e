"""The comparison that decides whether an artifact is verified."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from maxtool.runtime.loader import comparison
from maxtool.runtime.loader.comparison import compare

finite = st.floats(-1e6, 1e6, width=32)
some_arrays = arrays(np.float32, array_shapes(max_dims=3, max_side=5), elements=finite)


@dataclass(frozen=True)
class Tolerance(comparison.Tolerance):
    rtol: float = 1e-4
    atol: float = 1e-5


@given(some_arrays)
def test_an_array_equals_itself(array: np.ndarray) -> None:
    result = compare(array, array, Tolerance(0.0, 0.0))
    assert result.passed
    assert (result.relative_error, result.max_abs_error, result.argmax_agreement) == (0.0, 0.0, 1.0)


@given(some_arrays, st.floats(-0.5, 0.5))
def test_relative_error_is_the_ratio_of_the_norms(array: np.ndarray, change: float) -> None:
    wide = array.astype(np.float64)
    result = compare(wide * (1 + change), wide, Tolerance())
    if np.linalg.norm(wide) > 1e-3 and abs(change) > 1e-6:
        assert result.relative_error == pytest.approx(abs(change), rel=1e-6)
        assert result.max_abs_error == pytest.approx(abs(change) * np.abs(wide).max(), rel=1e-6)


SPECIAL = [np.nan, np.inf, -np.inf]


@given(some_arrays, st.sampled_from(SPECIAL), st.sampled_from([0.0, *SPECIAL]), st.data())
def test_nan_and_infinities_equal_themselves_alone(
    array: np.ndarray, value: float, other: float, data: st.DataObject
) -> None:
    place = tuple(data.draw(st.integers(0, side - 1)) for side in array.shape)
    actual, expected = array.copy(), array.copy()
    actual[place], expected[place] = value, other
    equal = np.array_equal(value, other, equal_nan=True)
    for left, right in ((actual, expected), (expected, actual)):
        result = compare(left, right, Tolerance(1e9, 1e9))
        assert (result.passed, result.unequal) == (equal, int(not equal))
        assert equal or result.worst_position == place
        assert equal or "1 NaN or infinite values differ" in str(result)


@pytest.mark.parametrize("value", SPECIAL)
def test_what_lies_beside_equal_nan_is_compared(value: float) -> None:
    expected = np.array([[value, 1.0, 2.0]])
    assert compare(expected * 1.00001, expected, Tolerance()).passed
    actual = compare(expected * 1.001, expected, Tolerance())
    assert not actual.passed
    assert actual.relative_error == pytest.approx(1e-3)


def test_nan_in_the_reference_alone_fails() -> None:
    result = compare(np.ones((1, 2)), np.array([[np.nan, 1.0]]), Tolerance(1.0, 1.0))
    assert not result.passed
    assert result.relative_error == np.inf


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (np.array([100000, 50124]), np.array([100000, 50123])),
        (np.array([[3, 2**53 + 1]]), np.array([[3, 2**53]])),
        (np.array([True, False]), np.array([True, True])),
        (np.array([0, 255], np.uint8), np.array([0, 0], np.uint8)),
    ],
)
def test_whole_numbers_must_be_equal(actual: np.ndarray, expected: np.ndarray) -> None:
    same = compare(expected, expected, Tolerance())
    assert same.passed
    assert str(same) == "0 of 2 whole numbers differ"
    result = compare(actual, expected, Tolerance(1e9, 1e9))
    assert not result.passed
    assert str(result).startswith("1 of 2 whole numbers differ, most at [")
    assert result.worst_position[-1] == 1


def test_worst_position_and_agreement() -> None:
    expected = np.array([[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]])
    actual = expected.copy()
    actual[0, 1, 2] += 5.0
    result = compare(actual, expected, Tolerance())
    assert result.worst_position == (0, 1, 2)
    assert result.max_abs_error == 5.0
    assert result.argmax_agreement == 0.5
    assert not result.passed
    assert "[0, 1, 2]" in str(result)


@pytest.mark.parametrize(("share", "passed"), [(0.9e-4, True), (1.1e-4, False)])
def test_the_tolerance_is_a_share_of_the_size(share: float, passed: bool) -> None:
    expected = np.random.default_rng(0).standard_normal((4, 100))
    actual = compare(expected * (1 + share), expected, Tolerance(rtol=1e-4, atol=0.0))
    assert actual.passed is passed


@pytest.mark.parametrize(("error", "passed"), [(0.9e-5, True), (1.1e-5, False)])
def test_zeros_are_compared_absolutely(error: float, passed: bool) -> None:
    zeros = np.zeros((3, 3))
    assert compare(zeros + error, zeros, Tolerance()).passed is passed


def test_one_wrong_element_among_a_million_fails() -> None:
    expected = np.random.default_rng(0).standard_normal((1000, 1000))
    actual = expected.copy()
    actual[500, 7] += 0.05
    result = compare(actual, expected, Tolerance())
    assert result.relative_error < 1e-4
    assert not result.passed


@pytest.mark.parametrize("shapes", [((2, 3), (3, 2)), ((2, 3), (2, 3, 1)), ((0, 3), (3, 0))])
def test_shapes_must_match(shapes: tuple[tuple[int, ...], ...]) -> None:
    actual, expected = map(np.zeros, shapes)
    with pytest.raises(ValueError, match="shape"):
        compare(actual, expected, Tolerance())


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_nothing_equals_nothing(shape: tuple[int, ...], dtype: type) -> None:
    result = compare(np.zeros(shape, dtype), np.zeros(shape, dtype), Tolerance(0.0, 0.0))
    assert result.passed
    assert (result.relative_error, result.max_abs_error, result.worst_position) == (0.0, 0.0, ())


@pytest.mark.parametrize(("size", "says"), [(1e-4, ", and 1e-06 of any size)"), (1.0, "1e-04)")])
def test_what_small_outputs_are_allowed_is_said(size: float, says: str) -> None:
    """An error that is larger than its share of the size, and passes, is explained."""
    expected = np.full(4, size, np.float32)
    result = compare(expected + np.float32(5e-7), expected, Tolerance(1e-4, 1e-6))
    assert result.passed
    assert says in str(result)
