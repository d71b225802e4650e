"""The 32-element encodings Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q8_1.

Arithmetic is float32 throughout, in the order of ggml-quants.c's ``*_ref`` functions, so results
are the same bit for bit.
"""

from __future__ import annotations

import numpy as np

from maxtool.quantization.block import (
    Codec,
    Float32,
    Records,
    UInt8,
    column,
    inverse,
    layout,
    pack_nibbles,
    unpack,
)
from maxtool.quantization.encoding import QuantizationEncoding

Q4_0 = layout(("d", "<f2"), ("qs", "u1", 16))
Q4_1 = layout(("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16))
Q5_0 = layout(("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16))
Q5_1 = layout(("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16))
Q8_0 = layout(("d", "<f2"), ("qs", "i1", 32))
Q8_1 = layout(("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32))

# The float32 just below one half: adding it and truncating rounds halves away from zero exactly,
# where adding one half itself would round 0.49999997 up.
BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))


def _nibbles(blocks: Records) -> Float32:
    return unpack(blocks["qs"], bits=4, run=16).astype(np.float32)


def _five_bits(blocks: Records) -> Float32:
    low = unpack(blocks["qs"], bits=4, run=16)
    high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    return (low | (high << np.uint8(4))).astype(np.float32)


def decode_q4_0(blocks: Records) -> Float32:
    """``d * (q - 8)``."""
    return (_nibbles(blocks) - np.float32(8)) * column(blocks["d"])


def decode_q4_1(blocks: Records) -> Float32:
    """``d * q + m``."""
    return _nibbles(blocks) * column(blocks["d"]) + column(blocks["m"])


def decode_q5_0(blocks: Records) -> Float32:
    """``d * (q - 16)``."""
    return (_five_bits(blocks) - np.float32(16)) * column(blocks["d"])


def decode_q5_1(blocks: Records) -> Float32:
    """``d * q + m``."""
    return _five_bits(blocks) * column(blocks["d"]) + column(blocks["m"])


def decode_q8(blocks: Records) -> Float32:
    """``d * q``; Q8_1's ``s`` is a sum kept for dot products and not needed here."""
    return blocks["qs"].astype(np.float32) * column(blocks["d"])


def encode_q4_0(values: Float32) -> Records:
    """The element of largest magnitude becomes -8 exactly."""
    scale, quants = _around_zero(values, 8)
    return _records(Q4_0, d=scale, qs=pack_nibbles(quants))


def encode_q4_1(values: Float32) -> Records:
    """Minimum and range, in 15 steps."""
    scale, least, quants = _between_extremes(values, 15)
    return _records(Q4_1, d=scale, m=least, qs=pack_nibbles(quants))


def encode_q5_0(values: Float32) -> Records:
    """The element of largest magnitude becomes -16 exactly."""
    scale, quants = _around_zero(values, 16)
    return _records(Q5_0, d=scale, qh=_fifth_bits(quants), qs=pack_nibbles(quants & np.uint8(15)))


def encode_q5_1(values: Float32) -> Records:
    """Minimum and range, in 31 steps."""
    scale, least, quants = _between_extremes(values, 31)
    fifth, low = _fifth_bits(quants), pack_nibbles(quants & np.uint8(15))
    return _records(Q5_1, d=scale, m=least, qh=fifth, qs=low)


def encode_q8_0(values: Float32) -> Records:
    """The largest magnitude becomes 127; halves round away from zero."""
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    quants = values * inverse(scale)
    quants += np.copysign(BELOW_HALF, quants)
    return _records(Q8_0, d=scale, qs=_truncate(quants, np.int8))


def _around_zero(values: Float32, steps: int) -> tuple[Float32, UInt8]:
    """Scale such that the first element of largest magnitude is ``-steps``; quants from 0."""
    where = np.abs(values).argmax(axis=1, keepdims=True)
    scale = np.take_along_axis(values, where, axis=1) / np.float32(-steps)
    quants = values * inverse(scale) + np.float32(steps + 0.5)
    return scale, np.minimum(_truncate(quants, np.uint8), np.uint8(2 * steps - 1))


def _between_extremes(values: Float32, steps: int) -> tuple[Float32, Float32, UInt8]:
    """Scale and minimum such that the extremes are 0 and ``steps``."""
    least = values.min(axis=1, keepdims=True)
    scale = (values.max(axis=1, keepdims=True) - least) / np.float32(steps)
    quants = (values - least) * inverse(scale) + np.float32(0.5)
    return scale, least, np.minimum(_truncate(quants, np.uint8), np.uint8(steps))


def _truncate(quants: Float32, integer: type[np.integer]) -> UInt8:
    """To integers; what a subnormal scale blew up becomes 0, as its stored scale is 0 anyway."""
    if not np.isfinite(quants).all():
        quants = np.nan_to_num(quants, nan=0.0, posinf=0.0, neginf=0.0)
    truncated: UInt8 = quants.astype(integer)
    return truncated


def _fifth_bits(quants: UInt8) -> UInt8:
    return np.packbits(quants >> np.uint8(4), axis=1, bitorder="little")


def _records(kind: np.dtype[np.void], **fields: Float32 | UInt8) -> Records:
    """Fill records ``[blocks]``; scales, given as ``[blocks, 1]``, round to float16."""
    records = np.empty(len(fields["qs"]), kind)
    for name, values in fields.items():
        records[name] = values if records[name].ndim == 2 else values[:, 0]
    return records


CODECS = {
    QuantizationEncoding.Q4_0: Codec(Q4_0, decode_q4_0, encode_q4_0),
    QuantizationEncoding.Q4_1: Codec(Q4_1, decode_q4_1, encode_q4_1),
    QuantizationEncoding.Q5_0: Codec(Q5_0, decode_q5_0, encode_q5_0),
    QuantizationEncoding.Q5_1: Codec(Q5_1, decode_q5_1, encode_q5_1),
    QuantizationEncoding.Q8_0: Codec(Q8_0, decode_q8, encode_q8_0),
    QuantizationEncoding.Q8_1: Codec(Q8_1, decode_q8),
}
