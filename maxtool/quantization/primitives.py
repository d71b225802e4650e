"""Primitives of the searches for scales: rounding, sums and extremes, with the bits of ggml.

Arrays are float32 ``[elements, groups]``: each column is a group of elements, and its elements are
taken in their order. So a kernel that works on a group after the other has the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.block import Float32, Int8, UInt8
from maxtool.quantization.tables import look_up

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
NEGATIVE_ZERO = np.float32(-0.0)
# Magnitudes below this are taken for zero: GROUP_MAX_EPS in ggml-quants.c.
NEGLIGIBLE = np.float32(1e-15)

# Added to a number below 2**22, it leaves no bits for a fraction.
ROUNDING = np.float32(3 << 22)
MANTISSA, EXPONENT = np.uint32(0x007F_FFFF), np.uint32(0x4B00_0000)  # of numbers from 2**23


def nearest(values: Float32) -> Float32:
    """Round in place to whole numbers, halves to even.

    As ggml's ``nearest_int`` reads the sum's low bits alone, what is beyond 2**22 wraps around;
    infinities become -2**22, and NaN 0.
    """
    values += ROUNDING
    bits = values.view(np.uint32)
    bits &= MANTISSA
    bits |= EXPONENT
    values -= ROUNDING
    return values


def rounded(values: Float32, least: int, most: int) -> Float32:
    """Round in place as ``nearest`` does, and clamp."""
    return np.clip(nearest(values), np.float32(least), np.float32(most), out=values)


def nearest_codes(scaled: Float32, values: Int8) -> UInt8:
    """The index of the value nearest to each number, of two as near the upper; of NaN the last.

    Values ascend, so that the middles between them are multiples of one half: what decides is the
    whole number below twice the number.
    """
    ends = 2 * int(values[0]), 2 * int(values[-1])
    doubled = scaled + scaled
    np.fmin(doubled, np.float32(ends[1]), out=doubled)
    np.fmax(doubled, np.float32(ends[0]), out=doubled)
    np.floor(doubled, out=doubled)
    doubled -= np.float32(ends[0])
    return look_up(_codes_of_halves(values.tobytes()), doubled.astype(np.int16))


@cache
def _codes_of_halves(values: bytes) -> UInt8:
    """The index of the nearest value, for each half from the first value to the last."""
    known = np.frombuffer(values, np.int8).astype(np.int16)
    middles = known[:-1] + known[1:]
    halves = np.arange(2 * known[0], 2 * known[-1] + 1)
    return np.searchsorted(middles, halves, side="right").astype(np.uint8)


def integers(values: Float32, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Whole numbers as integers; what is out of range wraps around, as in C."""
    return values.astype(np.int32).astype(dtype)


def total(terms: Float32) -> Float32:
    """The sum of each column, term after term, from zero."""
    return from_first(terms) + ZERO


def from_first(terms: Float32) -> Float32:
    """The sum of each column, term after term, from the first; that of negative zeros is one."""
    sums: Float32
    if terms.shape[1] == 1:  # NumPy would add pairwise along a single column
        sums = np.add.accumulate(terms, axis=0)[-1]
    else:  # NumPy may begin with zero, to which a negative zero makes no difference
        sums = np.add.reduce(terms, axis=0, initial=NEGATIVE_ZERO)
    return sums


def first_largest(values: Float32) -> Float32:
    """Each column's element of largest magnitude, with its sign; the first one of several."""
    largest, magnitude = np.zeros((2, values.shape[1]), np.float32)
    for element, size in zip(values, np.abs(values), strict=True):
        larger = size > magnitude
        np.copyto(largest, element, where=larger)
        np.copyto(magnitude, size, where=larger)
    return largest


def largest(values: Float32) -> Float32:
    """The largest element of each column, or zero where none is positive."""
    most: Float32 = np.fmax.reduce(values, axis=0, initial=ZERO)
    return most + ZERO  # never a negative zero


def extremes(values: Float32) -> tuple[Float32, Float32]:
    """The smallest and the largest element of each column; of two zeros the first one."""
    least, most = values[0].copy(), values[0].copy()
    for element in values[1:]:
        np.copyto(least, element, where=element < least)
        np.copyto(most, element, where=element > most)
    return least, most


def finite(scale: Float32, scales: Float32) -> Float32:
    """A block's scale; NaN where a sum overflowed, and one of its groups' scales is not finite.

    ggml takes such a group for zeros.
    """
    return np.where(np.isfinite(scales).all(axis=0), scale, np.float32(np.nan))
