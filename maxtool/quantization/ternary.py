"""The 256-element ternary encodings TQ1_0 and TQ2_0: every element is -d, 0 or d.

Layouts and arithmetic are those of ggml-common.h and ggml-quants.c.
"""

from __future__ import annotations

import numpy as np

from maxtool.quantization import block
from maxtool.quantization.block import BlockColumns, Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding

TQ1_0 = block.layout(("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2"))
TQ2_0 = block.layout(("qs", "u1", 64), ("d", "<f2"))

POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]
# TQ1_0's parts: the first element, how many bytes, and how many elements each byte holds.
PARTS = ((0, 32, 5), (160, 16, 5), (240, 4, 4))


def decode_tq1_0(blocks: Records, out: Float32) -> None:
    """A byte is a fraction of 256; three times it gives a digit, and what is left the next."""
    packed = np.concatenate([blocks["qs"], blocks["qh"]], axis=1)
    fractions = np.empty(out.shape, np.uint8)
    begin = 0
    for first, run, digits in PARTS:
        some = packed[:, None, begin : begin + run] * POWERS[:digits]
        fractions[:, first : first + run * digits] = some.reshape(len(blocks), -1)
        begin += run
    # The integer part of three times the fraction, less one.
    quants = (fractions >= np.uint8(86)).view(np.uint8)
    quants += (fractions >= np.uint8(171)).view(np.uint8)
    block.centred(quants, 1, block.column(blocks["d"]), out)


def decode_tq2_0(blocks: Records, out: Float32) -> None:
    """``d * (q - 1)`` of two bits each."""
    block.centred(block.unpack(blocks["qs"], bits=2, run=32), 1, block.column(blocks["d"]), out)


def encode_tq1_0(columns: BlockColumns, records: Records) -> None:
    """Five digits of base 3 in a byte, the first one highest, as a fraction rounded up."""
    digits = _digits(columns, records)
    bytes_ = []
    for first, run, count in PARTS:
        part = digits[first : first + run * count].reshape(count, run, -1)
        number = np.zeros(part.shape[1:], np.uint16)
        for power, digit in zip(POWERS[::-1, 0], part, strict=False):
            number += digit * power
        bytes_.append((number * np.uint16(256) + np.uint16(242)) // np.uint16(243))
    block.fill(records["qs"], np.concatenate(bytes_[:2]))
    block.fill(records["qh"], bytes_[2])


def encode_tq2_0(columns: BlockColumns, records: Records) -> None:
    """Two bits each."""
    digits = _digits(columns, records).reshape(2, 4, 32, -1)
    digits <<= np.arange(0, 8, 2, dtype=np.uint8)[:, None, None]
    block.fill(records["qs"], np.bitwise_or.reduce(digits, axis=1).reshape(64, -1))


def _digits(columns: BlockColumns, records: Records) -> UInt8:
    """0, 1 or 2 for what rounds to -d, 0 or d, halves away from zero; ``d`` is stored."""
    scale = columns.magnitude
    records["d"] = scale
    quants = columns.values
    quants *= block.inverse(scale)
    digits = (quants >= np.float32(0.5)).view(np.uint8)
    digits += (quants > np.float32(-0.5)).view(np.uint8)
    return digits


CODECS = {
    QuantizationEncoding.TQ1_0: Codec(TQ1_0, decode_tq1_0, encode_tq1_0),
    QuantizationEncoding.TQ2_0: Codec(TQ2_0, decode_tq2_0, encode_tq2_0),
}
