"""The 32-element encodings Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q8_1.

Arithmetic is float32 throughout, in the order of ggml-quants.c's ``*_ref`` functions, so results
are the same bit for bit.
"""

from __future__ import annotations

import numpy as np

from maxtool.quantization.block import (
    BlockColumns,
    Codec,
    Float32,
    Records,
    UInt8,
    column,
    fill,
    inverse,
    layout,
    pairs,
    scaled,
    spread,
)
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.quantization.tables import bit_bytes

Q4_0 = layout(("d", "<f2"), ("qs", "u1", 16))
Q4_1 = layout(("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16))
Q5_0 = layout(("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16))
Q5_1 = layout(("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16))
Q8_0 = layout(("d", "<f2"), ("qs", "i1", 32))
Q8_1 = layout(("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32))

# The float32 just below one half: adding it and truncating rounds halves away from zero exactly,
# where adding one half itself would round 0.49999997 up.
BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))
# The low four bits of eight bytes.
LOW_BITS = np.uint64(0x0F0F_0F0F_0F0F_0F0F)
SIGN = np.uint32(0x8000_0000)


def _nibbles(blocks: Records) -> UInt8:
    words = np.ascontiguousarray(blocks["qs"]).view(np.uint64)
    values = np.empty((len(blocks), 4), np.uint64)
    for half in range(2):
        np.right_shift(words[:, half], np.uint64(0), out=values[:, half])
        np.right_shift(words[:, half], np.uint64(4), out=values[:, 2 + half])
    values &= LOW_BITS
    return values.view(np.uint8)


def _five_bits(blocks: Records) -> UInt8:
    quants = _nibbles(blocks)
    quants |= bit_bytes(blocks["qh"], 0x10)
    return quants


def decode_q4_0(blocks: Records, out: Float32) -> None:
    """``d * (q - 8)``."""
    scaled(_nibbles(blocks).view(np.int8) - np.int8(8), column(blocks["d"]), out)


def decode_q4_1(blocks: Records, out: Float32) -> None:
    """``d * q + m``."""
    scaled(_nibbles(blocks), column(blocks["d"]), out)
    out += spread(column(blocks["m"]), out)


def decode_q5_0(blocks: Records, out: Float32) -> None:
    """``d * (q - 16)``."""
    scaled(_five_bits(blocks).view(np.int8) - np.int8(16), column(blocks["d"]), out)


def decode_q5_1(blocks: Records, out: Float32) -> None:
    """``d * q + m``."""
    scaled(_five_bits(blocks), column(blocks["d"]), out)
    out += spread(column(blocks["m"]), out)


def decode_q8(blocks: Records, out: Float32) -> None:
    """``d * q``; Q8_1's ``s`` is a sum kept for dot products and not needed here."""
    scaled(blocks["qs"], column(blocks["d"]), out)


def encode_q4_0(columns: BlockColumns, records: Records) -> None:
    """The element of largest magnitude becomes -8 exactly."""
    records["d"], quants = _around_zero(columns, 8)
    fill(records["qs"], pairs(quants))


def encode_q4_1(columns: BlockColumns, records: Records) -> None:
    """Minimum and range, in 15 steps."""
    records["d"], records["m"], quants = _between_extremes(columns, 15)
    fill(records["qs"], pairs(quants))


def encode_q5_0(columns: BlockColumns, records: Records) -> None:
    """The element of largest magnitude becomes -16 exactly."""
    records["d"], quants = _around_zero(columns, 16)
    _fill_five_bits(records, quants)


def encode_q5_1(columns: BlockColumns, records: Records) -> None:
    """Minimum and range, in 31 steps."""
    records["d"], records["m"], quants = _between_extremes(columns, 31)
    _fill_five_bits(records, quants)


def encode_q8_0(columns: BlockColumns, records: Records) -> None:
    """The largest magnitude becomes 127; halves round away from zero."""
    scale = columns.magnitude / np.float32(127)
    records["d"] = scale
    quants = columns.values
    quants *= inverse(scale)
    half = quants.view(np.uint32) & SIGN
    half |= BELOW_HALF.view(np.uint32)
    quants += half.view(np.float32)
    fill(records["qs"], quants.astype(np.int8))


def _around_zero(columns: BlockColumns, steps: int) -> tuple[Float32, UInt8]:
    """Scale such that the first element of largest magnitude is ``-steps``; quants from 0."""
    scale = _first_largest(columns) / np.float32(-steps)
    factor = inverse(scale)
    quants = columns.values
    quants *= factor
    quants += np.float32(steps + 0.5)
    whole = quants.astype(np.uint8)
    # 1 / scale is infinite: ggml's quants, of infinities and NaN, are 0 on common processors.
    whole[:, (factor == 0) & (scale != 0)] = 0
    return scale, np.minimum(whole, np.uint8(2 * steps - 1), out=whole)


def _first_largest(columns: BlockColumns) -> Float32:
    """Each block's element of largest magnitude, with its sign; the first one of several."""
    least, most = columns.least, columns.most
    largest = np.where(most > -least, most, least)
    ties = np.flatnonzero(most == -least)
    if ties.size:
        tied = columns.rows(ties)
        where = np.abs(tied).argmax(axis=1, keepdims=True)
        largest[ties] = np.take_along_axis(tied, where, axis=1)[:, 0]
    return largest


def _between_extremes(columns: BlockColumns, steps: int) -> tuple[Float32, Float32, UInt8]:
    """Scale and minimum such that the extremes are 0 and ``steps``."""
    least = columns.least
    zeros = np.flatnonzero(least == 0)
    if zeros.size:  # of zeros of both signs, the one that NumPy finds along a row
        least[zeros] = columns.rows(zeros).min(axis=1)
    scale = (columns.most - least) / np.float32(steps)
    quants = columns.values
    quants -= least
    quants *= inverse(scale)
    quants += np.float32(0.5)
    whole = quants.astype(np.uint8)
    return scale, least, np.minimum(whole, np.uint8(steps), out=whole)


def _fill_five_bits(records: Records, quants: UInt8) -> None:
    fifth = (quants >> np.uint8(4)).reshape(4, 8, -1)
    fifth <<= np.arange(8, dtype=np.uint8)[:, None]
    fill(records["qh"], np.bitwise_or.reduce(fifth, axis=1))
    quants &= np.uint8(15)
    fill(records["qs"], pairs(quants))


CODECS = {
    QuantizationEncoding.Q4_0: Codec(Q4_0, decode_q4_0, encode_q4_0),
    QuantizationEncoding.Q4_1: Codec(Q4_1, decode_q4_1, encode_q4_1),
    QuantizationEncoding.Q5_0: Codec(Q5_0, decode_q5_0, encode_q5_0),
    QuantizationEncoding.Q5_1: Codec(Q5_1, decode_q5_1, encode_q5_1),
    QuantizationEncoding.Q8_0: Codec(Q8_0, decode_q8, encode_q8_0),
    QuantizationEncoding.Q8_1: Codec(Q8_1, decode_q8),
}
