"""Casts between floating-point types, in chunks, to the bits that NumPy and ml_dtypes give.

NumPy and ml_dtypes cast most of these number by number. A table of all numbers of a narrow type,
made with their casts, is two to four times as fast, and so is arithmetic on the bits of arrays.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.parallel import in_parts

Float32 = NDArray[np.float32]

# Elements of a chunk: a few temporaries of float32 together fit a core's second cache.
CHUNK_ELEMENTS = 1 << 16

FLOAT16, FLOAT32 = np.dtype(np.float16), np.dtype(np.float32)
# What float32 holds exactly.
NARROWER = frozenset(
    dtype.to_numpy()
    for dtype in DType
    if dtype.is_float() and dtype.size_in_bytes < FLOAT32.itemsize
)

MAGNITUDE = np.uint32(0x7FFF_FFFF)
# float32 bits from which on values round to infinity as float16, and below which they are
# subnormal there: 65520 and 2**-14.
HALF_OVERFLOW, HALF_NORMAL = np.uint32(0x477F_F000), np.uint32(0x3880_0000)
HALF_INFINITY = 0x7C00
ONE_HALF = np.float32(0.5)


def cast(values: NDArray[Any], dtype: DType) -> tuple[NDArray[Any], int]:
    """Numbers as another type, rounded to nearest even; floats must not become integers.

    With the new array comes how many finite floats are no longer finite or integers are others now.
    """
    flat = values.reshape(-1)
    result = np.empty(flat.shape, dtype.to_numpy())

    def work(part: slice) -> int:
        with np.errstate(all="ignore"):
            return _cast_chunk(flat[part], result[part])

    lost = sum(in_parts(flat.size, CHUNK_ELEMENTS, work, threads=1))
    return result.reshape(values.shape), lost


def oddities(values: NDArray[Any]) -> frozenset[str]:
    """The non-finite values that floats hold: ``NaN``, ``infinity``, both or neither."""
    flat = values.reshape(-1)
    step = CHUNK_ELEMENTS * (4 if flat.dtype.itemsize == 2 else 1)  # which needs no temporaries
    parts = in_parts(flat.size, step, lambda part: _oddities(flat[part]), threads=1)
    return frozenset().union(*parts)


def widen(values: NDArray[Any], out: Float32 | None = None) -> Float32:
    """A chunk of numbers as float32, in ``out``; a float32 array is returned as it is."""
    if values.dtype == FLOAT32:
        return values
    result = np.empty(values.shape, np.float32) if out is None else out
    if values.dtype.itemsize == 1 and values.dtype in NARROWER:
        _look_up(values, result)
    elif values.dtype != FLOAT16 or not _widen_half(values, result):
        np.copyto(result, values, casting="unsafe")
    return result


def _cast_chunk(values: NDArray[Any], out: NDArray[Any]) -> int:
    """Cast into ``out``; returns how many values are damaged."""
    narrow = values.dtype in NARROWER
    if narrow and out.dtype == FLOAT32:
        widen(values, out)
        return 0
    if narrow and out.dtype in NARROWER:
        _look_up(values, out)
    elif values.dtype != FLOAT32 or out.dtype != FLOAT16 or not _narrow_to_half(values, out):
        np.copyto(out, values, casting="unsafe")
    return _damaged(values, out)


def _look_up(values: NDArray[Any], out: NDArray[Any]) -> None:
    """Cast numbers of one or two bytes by the table of them all."""
    codes = values.view(f"u{values.dtype.itemsize}")
    # All codes are in the table; "clip" only avoids a copy that "raise" makes.
    _table(values.dtype, out.dtype).take(codes, mode="clip", out=out.view(f"u{out.itemsize}"))


@cache
def _table(source: np.dtype[Any], target: np.dtype[Any]) -> NDArray[Any]:
    """The bits in ``target`` of every number of ``source``, which has one or two bytes."""
    bits = 8 * source.itemsize
    numbers = np.arange(1 << bits, dtype=f"u{source.itemsize}").view(source)
    if source.itemsize == 1:  # ml_dtypes has no casts among some 8-bit types; float32 holds them
        numbers = numbers.astype(np.float32)
    return numbers.astype(target).view(f"u{target.itemsize}")


def _widen_half(values: NDArray[Any], out: Float32) -> bool:
    """float16 to float32; ``False`` where there is infinity or NaN.

    Shifted to its place, a number is too small by the difference of the exponents' offsets, 112.
    """
    bits = values.view(np.int16)
    if _largest_magnitude(values) >= HALF_INFINITY:
        return False
    shifted = out.view(np.int32)
    np.copyto(shifted, bits)
    shifted <<= np.int32(13)
    shifted &= np.int32(-0x7000_0001)  # the sign's copies, all but the first
    out *= np.float32(2.0**112)
    return True


def _narrow_to_half(values: Float32, out: NDArray[Any]) -> bool:
    """float32 to float16; ``False`` where a value is NaN, infinite, or becomes so."""
    bits = values.view(np.uint32)
    magnitude = bits & MAGNITUDE
    if magnitude.max(initial=0) >= HALF_OVERFLOW:
        return False
    # Half of the last place, less one where the place before is even: that is nearest even.
    half = magnitude >> np.uint32(13)
    half &= np.uint32(1)
    half += magnitude
    half += np.uint32(0xFFF - (112 << 23) & 0xFFFF_FFFF)
    half >>= np.uint32(13)
    # Added to one half, a number below 2**-14 is rounded to multiples of 2**-24, as subnormals are.
    subnormal = (magnitude.view(np.float32) + ONE_HALF).view(np.uint32)
    subnormal -= ONE_HALF.view(np.uint32)
    np.copyto(half, subnormal, where=magnitude < HALF_NORMAL)
    sign = np.right_shift(bits, np.uint32(16), out=subnormal)
    sign &= np.uint32(0x8000)
    half |= sign
    np.copyto(out.view(np.uint16), half, casting="unsafe")
    return True


def _damaged(before: NDArray[Any], after: NDArray[Any]) -> int:
    """Count the values a cast damaged: finite ones that no longer are, integers that changed."""
    if after.dtype.kind in "iu" and before.dtype.kind in "iu":
        limits = np.iinfo(after.dtype)
        return int(np.count_nonzero((before < limits.min) | (before > limits.max)))
    if after.dtype.kind in "iub":
        return int(np.count_nonzero(after.astype(before.dtype) != before))
    if after.dtype.itemsize == 2 and not _holds_nan(after, infinite=True):
        return 0
    lost = ~np.isfinite(after)
    return int(np.count_nonzero(lost & np.isfinite(before))) if lost.any() else 0


def _holds_nan(values: NDArray[Any], *, infinite: bool = False) -> bool:
    """Return whether a chunk of floats holds NaN, or infinity too; 16-bit types by their bits."""
    if values.dtype.itemsize != 2:
        return not np.isfinite(values).all() if infinite else bool(np.isnan(values).any())
    infinity = int(np.array(np.inf, values.dtype).view(np.uint16))
    largest = _largest_magnitude(values)
    return largest >= infinity if infinite else largest > infinity


def _oddities(values: NDArray[Any]) -> frozenset[str]:
    if not _holds_nan(values, infinite=True):
        return frozenset()
    with np.errstate(invalid="ignore"):  # signalling NaN
        found = {"NaN": np.isnan(values).any(), "infinity": np.isinf(values).any()}
    return frozenset(name for name, there in found.items() if there)


def _largest_magnitude(values: NDArray[Any]) -> int:
    """The largest of a 16-bit type's bits but the sign, without a temporary array."""
    signed = int(values.view(np.int16).max(initial=0))
    return max(signed, int(values.view(np.uint16).max(initial=0)) & 0x7FFF)
