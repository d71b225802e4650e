"""Integer scales and bits that GGUF blocks hold in pieces, in whole bytes for kernels, and back.

Each function takes a block's field ``[..., bytes]`` to another form of the same bits; those of a
pair are inverses of each other, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
SIX = np.uint8(0x3F)
LOW, TOP = np.uint8(0x0F), np.uint8(0xC0)
ROTATIONS = tuple(np.uint8(shift) for shift in (0, 2, 4, 6))


def scales_and_minima(packed: UInt8) -> tuple[UInt8, UInt8]:
    """The 8 scales and 8 minima of Q4_K and Q5_K, of six bits, from their 12 bytes.

    Bytes 0-3 hold scales 0-3 in six bits, bytes 4-7 minima 0-3; bytes 8-11 hold the low four bits
    of scales and minima 4-7, whose high two bits are the top bits of bytes 0-7.
    """
    first, last = packed[..., :8], packed[..., 8:]
    top = (first & TOP) >> np.uint8(2)
    scales = (first[..., :4] & SIX, (last & LOW) | top[..., :4])
    minima = (first[..., 4:] & SIX, (last >> np.uint8(4)) | top[..., 4:])
    return np.concatenate(scales, axis=-1), np.concatenate(minima, axis=-1)


def from_scales_and_minima(scales: UInt8, minima: UInt8) -> UInt8:
    """Undo :func:`scales_and_minima`."""
    both = np.concatenate([scales[..., :4], minima[..., :4]], axis=-1)
    late = np.concatenate([scales[..., 4:], minima[..., 4:]], axis=-1)
    low = (scales[..., 4:] & LOW) | (minima[..., 4:] << np.uint8(4))
    return np.concatenate([both | ((late << np.uint8(2)) & TOP), low], axis=-1)


def sixteen_scales(packed: UInt8) -> UInt8:
    """The 16 six-bit scales of Q3_K less 32, as the bits of int8, from their 12 bytes.

    Bytes 0-7 hold the low four bits of scales 0-7 and 8-15, bytes 8-11 the high two bits: those of
    scales 0-3 lowest, then 4-7, 8-11 and 12-15.
    """
    low, high = packed[..., :8], packed[..., 8:]
    whole = np.concatenate([low & LOW, low >> np.uint8(4)], axis=-1)
    tops = [((high >> shift) & np.uint8(3)) << np.uint8(4) for shift in ROTATIONS]
    return (whole | np.concatenate(tops, axis=-1)) - np.uint8(32)


def from_sixteen_scales(scales: UInt8) -> UInt8:
    """Undo :func:`sixteen_scales`."""
    whole = scales + np.uint8(32)
    low = (whole[..., :8] & LOW) | (whole[..., 8:] << np.uint8(4))
    tops = whole >> np.uint8(4)
    high = tops[..., :4].copy()
    for quarter, shift in enumerate(ROTATIONS[1:], 1):
        high |= tops[..., 4 * quarter : 4 * quarter + 4] << shift
    return np.concatenate([low, high], axis=-1)


def eight_scales(low: UInt8, high: UInt8) -> UInt8:
    """The 8 six-bit scales of IQ4_XS less 32, as the bits of int8.

    ``low`` is 4 bytes of the low four bits, two scales each, and ``high`` 2 bytes of the high two.
    """
    whole = np.stack([low & LOW, low >> np.uint8(4)], axis=-1).reshape(*low.shape[:-1], 8)
    tops = np.stack([(high >> shift) & np.uint8(3) for shift in ROTATIONS], axis=-1)
    scales: UInt8 = (whole | (tops.reshape(whole.shape) << np.uint8(4))) - np.uint8(32)
    return scales


def from_eight_scales(scales: UInt8) -> tuple[UInt8, UInt8]:
    """Undo :func:`eight_scales`."""
    whole = scales + np.uint8(32)
    low = (whole[..., ::2] & LOW) | (whole[..., 1::2] << np.uint8(4))
    tops = (whole >> np.uint8(4)).reshape(*scales.shape[:-1], 2, 4)
    shifted = tops << np.array(ROTATIONS, np.uint8)
    high: UInt8 = np.bitwise_or.reduce(shifted, axis=-1)
    return low, high


def transposed_bits(packed: UInt8) -> UInt8:
    """4 bytes of the bits of 32 terms, so that bit ``g`` of byte ``t`` is that of term 4 g + t."""
    bits = np.unpackbits(packed, axis=-1, bitorder="little")
    return _packed_bits(bits.reshape(*packed.shape[:-1], 8, 4))


def from_transposed_bits(packed: UInt8) -> UInt8:
    """Undo :func:`transposed_bits`."""
    bits = np.unpackbits(packed, axis=-1, bitorder="little")
    return _packed_bits(bits.reshape(*packed.shape[:-1], 4, 8))


def _packed_bits(bits: UInt8) -> UInt8:
    """Bits ``[..., a, b]``, read with ``a`` running fastest, as bytes."""
    swapped = bits.swapaxes(-1, -2).reshape(*bits.shape[:-2], 32)
    return np.packbits(swapped, axis=-1, bitorder="little")
