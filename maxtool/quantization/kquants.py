"""Decoders of the 256-element encodings Q2_K to Q6_K and Q8_K.

Layouts and arithmetic are those of ggml-common.h and ggml-quants.c; float32 throughout, so results
are the same bit for bit.
"""

from __future__ import annotations

import numpy as np

from maxtool.quantization import block
from maxtool.quantization.block import Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding

Q2_K = block.layout(("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2"))
Q3_K = block.layout(("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2"))
Q4_K = block.layout(("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128))
Q5_K = block.layout(
    ("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)
)
Q6_K = block.layout(("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2"))
Q8_K = block.layout(("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16))


def decode_q2_k(blocks: Records, out: Float32) -> None:
    """``d * scale * q - dmin * min``, with 16 groups of 4-bit scales and minima."""
    scales = block.column(blocks["d"]) * (blocks["scales"] & np.uint8(15)).astype(np.float32)
    minima = block.column(blocks["dmin"]) * (blocks["scales"] >> np.uint8(4)).astype(np.float32)
    _affine(block.unpack(blocks["qs"], bits=2, run=32), scales, minima, out)


def decode_q3_k(blocks: Records, out: Float32) -> None:
    """``d * (scale - 32) * (q - 4 where the mask bit is clear)``, 16 groups of 6-bit scales."""
    packed = blocks["scales"]
    low, high = (
        block.unpack(packed[:, :8], bits=4, run=8),
        block.unpack(packed[:, 8:], bits=2, run=4),
    )
    scales = (low | (high << np.uint8(4))).astype(np.float32) - np.float32(32)
    quants = block.unpack(blocks["hmask"], bits=1, run=32)
    quants <<= np.uint8(2)
    quants |= block.unpack(blocks["qs"], bits=2, run=32)
    block.centred(quants, 4, block.column(blocks["d"]) * scales, out)


def decode_q4_k(blocks: Records, out: Float32) -> None:
    """``d * scale * q - dmin * min``, with 8 groups of 6-bit scales and minima."""
    _affine(block.unpack(blocks["qs"], bits=4, run=32), *_scales_and_minima(blocks), out)


def decode_q5_k(blocks: Records, out: Float32) -> None:
    """Decode Q5_K: as Q4_K, with a fifth bit per element."""
    quants = block.unpack(blocks["qh"], bits=1, run=32)
    quants <<= np.uint8(4)
    quants |= block.unpack(blocks["qs"], bits=4, run=32)
    _affine(quants, *_scales_and_minima(blocks), out)


def decode_q6_k(blocks: Records, out: Float32) -> None:
    """``d * scale * (q - 32)``, with 16 groups of signed 8-bit scales."""
    quants = block.unpack(blocks["qh"], bits=2, run=32)
    quants <<= np.uint8(4)
    quants |= block.unpack(blocks["ql"], bits=4, run=64)
    block.centred(quants, 32, block.column(blocks["d"]) * blocks["scales"].astype(np.float32), out)


def decode_q8_k(blocks: Records, out: Float32) -> None:
    """``d * q`` with a float32 ``d``; ``bsums`` serve dot products only."""
    block.scaled(blocks["qs"], block.column(blocks["d"]), out)


def _scales_and_minima(blocks: Records) -> tuple[Float32, Float32]:
    """The 8 scales and 8 minima of Q4_K and Q5_K, already times ``d`` and ``dmin``.

    Bytes 0-3 hold scales 0-3 in six bits, bytes 4-7 minima 0-3; bytes 8-11 hold the low four bits
    of scales and minima 4-7, whose high two bits are the top bits of bytes 0-7.
    """
    packed = np.ascontiguousarray(blocks["scales"].T)  # long rows, one for each byte
    first, last = packed[:8], packed[8:]
    top = (first >> np.uint8(2)) & np.uint8(0x30)
    six = first & np.uint8(0x3F)
    scales = np.concatenate([six[:4], (last & np.uint8(15)) | top[:4]])
    minima = np.concatenate([six[4:], (last >> np.uint8(4)) | top[4:]])
    return (
        (blocks["d"].astype(np.float32) * scales.astype(np.float32)).T,
        (blocks["dmin"].astype(np.float32) * minima.astype(np.float32)).T,
    )


def _affine(quants: UInt8, scales: Float32, minima: Float32, out: Float32) -> None:
    """``scale * q - min`` for each group."""
    block.scaled(quants, scales, out)
    out -= block.spread(minima, out)


CODECS = {
    QuantizationEncoding.Q2_K: Codec(Q2_K, decode_q2_k),
    QuantizationEncoding.Q3_K: Codec(Q3_K, decode_q3_k),
    QuantizationEncoding.Q4_K: Codec(Q4_K, decode_q4_k),
    QuantizationEncoding.Q5_K: Codec(Q5_K, decode_q5_k),
    QuantizationEncoding.Q6_K: Codec(Q6_K, decode_q6_k),
    QuantizationEncoding.Q8_K: Codec(Q8_K, decode_q8_k),
}
