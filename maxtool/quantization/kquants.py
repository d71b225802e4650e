"""Decoders of the 256-element encodings Q2_K to Q6_K and Q8_K.

Layouts and arithmetic are those of ggml-common.h and ggml-quants.c; float32 throughout, so results
are the same bit for bit.
"""

from __future__ import annotations

import numpy as np

from maxtool.quantization.block import Codec, Float32, Records, UInt8, column, layout, unpack
from maxtool.quantization.encoding import QuantizationEncoding

Q2_K = layout(("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2"))
Q3_K = layout(("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2"))
Q4_K = layout(("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128))
Q5_K = layout(
    ("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)
)
Q6_K = layout(("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2"))
Q8_K = layout(("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16))


def decode_q2_k(blocks: Records) -> Float32:
    """``d * scale * q - dmin * min``, with 16 groups of 4-bit scales and minima."""
    scales = column(blocks["d"]) * (blocks["scales"] & np.uint8(15)).astype(np.float32)
    minima = column(blocks["dmin"]) * (blocks["scales"] >> np.uint8(4)).astype(np.float32)
    return _affine(unpack(blocks["qs"], bits=2, run=32), scales, minima)


def decode_q3_k(blocks: Records) -> Float32:
    """``d * (scale - 32) * (q - 4 where the mask bit is clear)``, 16 groups of 6-bit scales."""
    packed = blocks["scales"]
    low, high = unpack(packed[:, :8], bits=4, run=8), unpack(packed[:, 8:], bits=2, run=4)
    scales = (low | (high << np.uint8(4))).astype(np.float32) - np.float32(32)
    quants = unpack(blocks["qs"], bits=2, run=32)
    quants |= unpack(blocks["hmask"], bits=1, run=32) << np.uint8(2)
    return _scaled(quants, 4, column(blocks["d"]) * scales)


def decode_q4_k(blocks: Records) -> Float32:
    """``d * scale * q - dmin * min``, with 8 groups of 6-bit scales and minima."""
    return _affine(unpack(blocks["qs"], bits=4, run=32), *_scales_and_minima(blocks))


def decode_q5_k(blocks: Records) -> Float32:
    """As Q4_K, with a fifth bit per element."""
    quants = unpack(blocks["qs"], bits=4, run=32)
    quants |= unpack(blocks["qh"], bits=1, run=32) << np.uint8(4)
    return _affine(quants, *_scales_and_minima(blocks))


def decode_q6_k(blocks: Records) -> Float32:
    """``d * scale * (q - 32)``, with 16 groups of signed 8-bit scales."""
    quants = unpack(blocks["ql"], bits=4, run=64)
    quants |= unpack(blocks["qh"], bits=2, run=32) << np.uint8(4)
    return _scaled(quants, 32, column(blocks["d"]) * blocks["scales"].astype(np.float32))


def decode_q8_k(blocks: Records) -> Float32:
    """``d * q`` with a float32 ``d``; ``bsums`` serve dot products only."""
    return blocks["qs"].astype(np.float32) * column(blocks["d"])


def _scales_and_minima(blocks: Records) -> tuple[Float32, Float32]:
    """The 8 scales and 8 minima of Q4_K and Q5_K, already times ``d`` and ``dmin``.

    Bytes 0-3 hold scales 0-3 in six bits, bytes 4-7 minima 0-3; bytes 8-11 hold the low four bits
    of scales and minima 4-7, whose high two bits are the top bits of bytes 0-7.
    """
    packed = blocks["scales"]
    first, last = packed[:, :8], packed[:, 8:]
    top = (first >> np.uint8(2)) & np.uint8(0x30)
    six = first & np.uint8(0x3F)
    scales = np.concatenate([six[:, :4], (last & np.uint8(15)) | top[:, :4]], axis=1)
    minima = np.concatenate([six[:, 4:], (last >> np.uint8(4)) | top[:, 4:]], axis=1)
    return (
        column(blocks["d"]) * scales.astype(np.float32),
        column(blocks["dmin"]) * minima.astype(np.float32),
    )


def _affine(quants: UInt8, scales: Float32, minima: Float32) -> Float32:
    """``scale * q - min`` for each group."""
    values = quants.reshape(*scales.shape, -1).astype(np.float32)
    values *= scales[..., None]
    values -= minima[..., None]
    return values.reshape(len(values), -1)


def _scaled(quants: UInt8, zero: int, scales: Float32) -> Float32:
    """``scale * (q - zero)`` for each group."""
    values = quants.reshape(*scales.shape, -1).astype(np.float32)
    values -= np.float32(zero)
    values *= scales[..., None]
    return values.reshape(len(values), -1)


CODECS = {
    QuantizationEncoding.Q2_K: Codec(Q2_K, decode_q2_k),
    QuantizationEncoding.Q3_K: Codec(Q3_K, decode_q3_k),
    QuantizationEncoding.Q4_K: Codec(Q4_K, decode_q4_k),
    QuantizationEncoding.Q5_K: Codec(Q5_K, decode_q5_k),
    QuantizationEncoding.Q6_K: Codec(Q6_K, decode_q6_k),
    QuantizationEncoding.Q8_K: Codec(Q8_K, decode_q8_k),
}
