"""Small unsigned integers packed into 32-bit words, and their products with scales."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.casting import CHUNK_ELEMENTS, cast
from maxtool.dtype import DType

WORD = 32

UInt8 = NDArray[np.uint8]


def words_of(count: int, bits: int) -> int:
    """Return how many words ``count`` integers of ``bits`` bits fill, the last one in part."""
    return -(-count * bits // WORD)


def unpack_last(
    words: NDArray[Any], bits: int, count: int, places: Sequence[int] | None = None
) -> UInt8:
    """The integers along the last axis: number ``i`` begins at bit ``i * bits`` of the words.

    Args:
        words: int32 or uint32, ``[rows, words_of(count, bits)]``.
        bits: 1 to 8. A number may lie in two words.
        count: How many integers a row has.
        places: Where, of the numbers of a word, each one goes; in their order by default.

    Returns:
        ``[rows, count]``.
    """
    stored = np.ascontiguousarray(words)[:, :, None]
    return _unpacked(stored, bits, places)[:, :count, 0]


def unpack_first(words: NDArray[Any], bits: int, count: int) -> UInt8:
    """The same along the first axis: ``[words, columns]`` to ``[count, columns]``."""
    return _unpacked(words[None], bits)[0, :count]


def _unpacked(words: NDArray[Any], bits: int, places: Sequence[int] | None = None) -> UInt8:
    """The integers of ``[outer, words, inner]`` along the middle."""
    period = bits // gcd(bits, WORD)  # words after which a number begins a word again
    each = period * WORD // bits
    outer, stored, inner = words.shape
    if missing := -stored % period:
        words = np.pad(words, ((0, 0), (0, missing), (0, 0)))
    wide = words.view(np.uint32).reshape(outer, -1, period, inner)
    out = np.empty((outer, wide.shape[1], each, inner), np.uint8)
    mask = np.uint32((1 << bits) - 1)
    for number, place in enumerate(places or range(each)):
        word, shift = divmod(number * bits, WORD)
        found = wide[:, :, word] >> np.uint32(shift)
        if shift + bits > WORD:
            found |= wide[:, :, word + 1] << np.uint32(WORD - shift)
        np.bitwise_and(found, mask, out=out[:, :, place], casting="unsafe")
    return out.reshape(outer, -1, inner)


def rows_at_once(width: int) -> int:
    """Return how many rows of ``width`` elements are decoded at a time."""
    return max(1, CHUNK_ELEMENTS // max(1, width))


def products(
    integers: NDArray[Any], zeros: NDArray[Any] | None, scales: NDArray[Any], dtype: DType
) -> NDArray[Any]:
    """``(integers - zeros) * scales``, rounded once to ``dtype``, which is that of the scales.

    The difference has at most 9 bits, a float16 or bfloat16 scale at most 11, and float32 holds
    their product; so this is what frameworks compute in the type of the scales.
    """
    values = integers.astype(np.float32)
    with np.errstate(all="ignore"):
        if zeros is not None:
            values -= zeros
        values *= scales
        return cast(values, dtype)[0]
