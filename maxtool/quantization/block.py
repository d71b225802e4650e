"""Building blocks of every block codec: a record layout, a decoder and perhaps an encoder.

Decoders work along rows: an output row is a block. Encoders work along columns: each column is a
block, so that what is done to every block is done to long contiguous rows, which NumPy does several
times faster than many short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.casting import widen

Float32 = NDArray[np.float32]
UInt8 = NDArray[np.uint8]
Int8 = NDArray[np.int8]
Records = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """Elements to be encoded, a block in each column.

    Attributes:
        values: ``[elements per block, blocks]``, finite; an encoder may overwrite them.
        least: The smallest element of each block, ``[blocks]``.
        most: The largest.
    """

    values: Float32
    least: Float32
    most: Float32

    @classmethod
    def of(cls, elements: NDArray[Any]) -> BlockColumns:
        """Turn ``[blocks, elements per block]`` of any float type."""
        values = np.empty(elements.shape[::-1], np.float32)
        np.copyto(values, widen(elements).T)
        return cls(values, values.min(axis=0), values.max(axis=0))

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
    """

    layout: np.dtype[np.void]
    decode: Callable[[Records, Float32], None]
    encode: Callable[[BlockColumns, Records], None] | None = None


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
