"""Building blocks of every block codec: a record layout, a decoder and perhaps an encoder.

Decoders work along rows: an output row is a block. Encoders work along columns: each column is a
block, so that what is done to every block is done to long contiguous rows, which NumPy does several
times faster than many short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.casting import widen

Float32 = NDArray[np.float32]
UInt8 = NDArray[np.uint8]
Int8 = NDArray[np.int8]
Records = NDArray[np.void]

NOTHING = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """Elements to be encoded, a block in each column.

    Attributes:
        values: ``[elements per block, blocks]``, finite; an encoder may overwrite them.
        least: The smallest element of each block, ``[blocks]``.
        most: The largest.
        importance: How much the squared error of each element counts, in the shape of ``values``;
            ``None`` where all count the same.
        row_power: The mean square of the row that each block is part of, ``[blocks]``; empty
            where it is not asked for.
    """

    values: Float32
    least: Float32
    most: Float32
    importance: Float32 | None = None
    row_power: Float32 = field(default_factory=lambda: NOTHING)

    @classmethod
    def of(
        cls,
        elements: NDArray[Any],
        importance: Float32 | None = None,
        row_power: Float32 = NOTHING,
    ) -> BlockColumns:
        """Turn ``[blocks, elements per block]`` of any float type, and their importance."""
        values = np.empty(elements.shape[::-1], np.float32)
        np.copyto(values, widen(elements).T)
        turned = None if importance is None else np.ascontiguousarray(importance.T)
        return cls(values, values.min(axis=0), values.max(axis=0), turned, row_power)

    def rows(self, which: NDArray[np.intp]) -> Float32:
        """Return some of the blocks as contiguous rows, ``[blocks, elements per block]``."""
        return np.ascontiguousarray(self.values[:, which].T)

    @property
    def magnitude(self) -> Float32:
        """The largest magnitude of each block; not finite if an element is not."""
        return np.abs(np.maximum(self.most, -self.least))


@dataclass(frozen=True, slots=True)
class Codec:
    """Conversion of one encoding's blocks into elements and back.

    Attributes:
        layout: The fields of one block, in the order of its bytes.
        decode: Reads records ``[blocks]`` and fills float32 ``[blocks, elements per block]``.
        encode: Fills records ``[blocks]``; ``None`` where there is no encoder. As for ``decode``,
            NumPy's floating-point warnings are off.
        searches: Whether ``encode`` tries many candidates: it takes long enough for threads.
        by_rows: Whether it reads ``row_power``, and searches only where importance is known.
    """

    layout: np.dtype[np.void]
    decode: Callable[[Records, Float32], None]
    encode: Callable[[BlockColumns, Records], None] | None = None
    searches: bool = False
    by_rows: bool = False


def layout(*fields: tuple[str, str] | tuple[str, str, int]) -> np.dtype[np.void]:
    """A packed little-endian record type: ``(name, type)`` or ``(name, type, count)`` each."""
    return np.dtype(list(fields))


def column(values: NDArray[Any]) -> Float32:
    """A scalar field ``[blocks]`` as float32 ``[blocks, 1]``, to broadcast over a block."""
    return values.astype(np.float32)[:, None]


def spread(groups: Float32, like: Float32) -> Float32:
    """Numbers ``[blocks, groups per block]`` as one for each element, in the shape of ``like``.

    Repeating them and multiplying contiguous arrays is faster than broadcasting over short rows.
    """
    wide = np.empty((groups.size, like.size // max(groups.size, 1)), np.float32)
    np.copyto(wide, groups.reshape(-1, 1))
    return wide.reshape(like.shape)


def scaled(quants: NDArray[Any], scales: Float32, out: Float32) -> None:
    """``scale * q``: integers ``[blocks, elements]``, scales ``[blocks, groups]``."""
    np.copyto(out, quants.reshape(out.shape))
    out *= spread(scales, out)


def centred(quants: UInt8, zero: int, scales: Float32, out: Float32) -> None:
    """``scale * (q - zero)``: as :func:`scaled`, the zero in the midst of the integers."""
    signed = quants.view(np.int8)
    signed -= np.int8(zero)
    scaled(signed, scales, out)


def unpack(packed: UInt8, *, bits: int, run: int) -> UInt8:
    """Spread integers of 1, 2 or 4 ``bits``, packed in planes: bytes ``[blocks, groups * run]``.

    Every ``run`` bytes hold ``8 // bits`` runs of values: all lowest bits first, then the next. So
    the result is ``[blocks, groups * run * 8 // bits]``.
    """
    count, mask = 8 // bits, (1 << bits) - 1
    word = np.dtype(np.uint8 if run % 8 else np.uint64)
    groups = np.ascontiguousarray(packed).view(word).reshape(len(packed), -1, run // word.itemsize)
    values = np.empty((*groups.shape[:2], count, groups.shape[2]), word)
    for plane in range(count):
        np.right_shift(groups, word.type(plane * bits), out=values[:, :, plane])
    values &= word.type(int.from_bytes(bytes([mask]) * word.itemsize))
    return values.view(np.uint8).reshape(len(packed), -1)


def pack(quants: UInt8, *, bits: int, run: int) -> UInt8:
    """Undo ``unpack``, for blocks in columns: ``[elements, blocks]`` to bytes."""
    planes = quants.reshape(-1, 8 // bits, run, quants.shape[1])
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None, None]
    joined: UInt8 = np.bitwise_or.reduce(planes << shifts, axis=1)
    return joined.reshape(-1, quants.shape[1])


def grouped(columns: NDArray[Any], elements: int) -> NDArray[Any]:
    """Blocks in columns, ``[groups * elements, blocks]``, as ``[elements, groups * blocks]``."""
    groups = columns.reshape(-1, elements, columns.shape[1])
    return np.ascontiguousarray(groups.swapaxes(0, 1)).reshape(elements, -1)


def ungrouped(groups: NDArray[Any], blocks: int) -> NDArray[Any]:
    """Undo ``grouped``."""
    columns = groups.reshape(len(groups), -1, blocks).swapaxes(0, 1)
    return np.ascontiguousarray(columns).reshape(-1, blocks)


def pairs(quants: UInt8) -> UInt8:
    """Values below 16, ``[32, blocks]``, as bytes ``[16, blocks]``: first half in the low bits."""
    packed = quants[16:] << np.uint8(4)
    packed |= quants[:16]
    return packed


def fill(field: NDArray[Any], columns: NDArray[Any]) -> None:
    """Store ``[bytes, blocks]`` in a field of records."""
    np.copyto(field, columns.T, casting="unsafe")


def inverse(scale: Float32) -> Float32:
    """``1 / scale`` in float32 as ggml computes it; 0 where that is infinite."""
    inverted = np.float32(1) / scale
    inverted[~np.isfinite(inverted)] = 0
    return inverted
