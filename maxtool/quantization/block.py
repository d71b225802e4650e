"""What every block codec is made of: a record layout, a decoder and perhaps an encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
UInt8 = NDArray[np.uint8]
Records = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Codec:
    """How one encoding's blocks turn into elements and back.

    Attributes:
        layout: The fields of one block, in the order of its bytes.
        decode: Records ``[blocks]`` to float32 ``[blocks, elements per block]``.
        encode: Float32 ``[blocks, elements per block]`` to records ``[blocks]``; ``None`` where
            there is no encoder. It may assume finite input, and
            that NumPy's floating-point warnings are off.
    """

    layout: np.dtype[np.void]
    decode: Callable[[Records], Float32]
    encode: Callable[[Float32], Records] | None = None


def layout(*fields: tuple[str, str] | tuple[str, str, int]) -> np.dtype[np.void]:
    """A packed little-endian record type: ``(name, type)`` or ``(name, type, count)`` each."""
    return np.dtype(list(fields))


def column(values: NDArray[Any]) -> Float32:
    """A scalar field ``[blocks]`` as float32 ``[blocks, 1]``, to broadcast over a block."""
    return values.astype(np.float32)[:, None]


def unpack(packed: UInt8, *, bits: int, run: int) -> UInt8:
    """Spread small integers that are packed in planes.

    Every ``run`` bytes hold ``8 // bits`` runs of values: all lowest bits first, then the next.

    Args:
        packed: Bytes ``[blocks, groups * run]``.
        bits: Width of one value: 1, 2 or 4.
        run: Bytes of one group.

    Returns:
        Values ``[blocks, groups * run * 8 // bits]``.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    groups = packed.reshape(len(packed), -1, 1, run)
    values = groups >> shifts
    values &= np.uint8((1 << bits) - 1)
    return values.reshape(len(packed), -1)


def pack_nibbles(values: UInt8) -> UInt8:
    """Values below 16, ``[blocks, 32]``, as bytes ``[blocks, 16]``: first half in the low bits."""
    return values[:, :16] | (values[:, 16:] << np.uint8(4))


def inverse(scale: Float32) -> Float32:
    """``1 / scale``, and 0 where the scale is 0, in float32 as ggml computes it."""
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)
