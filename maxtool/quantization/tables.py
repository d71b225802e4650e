"""Lookups of several small integers at once, and the tables of the IQ encodings.

A table holds packed bytes, and one lookup gives up to eight elements. The grids are those of the
gguf package, read when they are first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.block import Int8, UInt8

UInt64 = NDArray[np.uint64]


def look_up(table: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    """``table[index]``; indices are known to be in range, and bounds are not checked."""
    values: NDArray[Any] = table.take(index, mode="clip")
    return values


def bit_bytes(codes: UInt8, value: int) -> UInt8:
    """Bytes ``[blocks, n]`` as ``[blocks, 8 * n]``: ``value`` for each set bit, else 0."""
    bytes_ = look_up(bit_masks(), codes)
    if value != 0xFF:
        bytes_ &= np.uint64(value * 0x0101_0101_0101_0101)
    return bytes_.view(np.uint8)


@cache
def bit_masks() -> UInt64:
    """Return, for each byte, eight bytes in one integer: 255 where a bit is set, lowest first."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    bits *= np.uint8(255)
    return bits.view(np.uint64)[:, 0]


@cache
def even_masks() -> UInt64:
    """Return ``bit_masks`` for seven bits and an eighth that makes their number even."""
    from gguf.quants import IQ2_XXS

    return bit_masks()[np.frombuffer(IQ2_XXS.ksigns, np.uint8)]


def negated(packed: NDArray[Any], masks: NDArray[Any], codes: NDArray[Any]) -> Int8:
    """int8 packed in wider integers as int8, negated where the codes' masks have the byte 255."""
    signs = look_up(masks, codes)
    packed ^= signs
    values = packed.view(np.int8)
    values -= signs.view(np.int8)
    return values


def from_grid(name: str, index: NDArray[Any]) -> NDArray[Any]:
    """Entries of the grid of an IQ encoding."""
    return look_up(grid(name), index)


@cache
def grid(name: str) -> NDArray[Any]:
    """The grid of an IQ encoding, a row of 4 or 8 small integers packed in each entry."""
    import gguf.quants

    quant_type = getattr(gguf.quants, name)
    quant_type.init_grid()
    rows = quant_type.grid[0, 0].astype(np.int8)
    packed: NDArray[Any] = rows.view(f"u{rows.shape[1]}")[:, 0]
    return packed


def nibble_table(values: Sequence[int] | Int8) -> NDArray[np.uint32]:
    """Return, for two bytes at once, the values of their low, then of their high four bits."""
    known = np.asarray(values, np.int8)
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    both = np.concatenate([known[codes & 15], known[codes >> 4]], axis=1)
    return both.view(np.uint32)[:, 0]


def nibble_values(packed: UInt8, table: NDArray[np.uint32], *, run: int) -> Int8:
    """Values of four-bit codes ``[blocks, bytes]``, as ``[blocks, 2 * bytes]``.

    Every ``run`` bytes hold one run of values in their low bits, and then one in their high bits.
    """
    codes = np.ascontiguousarray(packed).view(np.uint16)
    pairs = look_up(table, codes).view(np.uint16).reshape(len(packed), -1, run // 2, 2)
    return np.ascontiguousarray(pairs.swapaxes(2, 3)).reshape(len(packed), -1).view(np.int8)
