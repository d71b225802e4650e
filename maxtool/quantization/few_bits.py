"""The encodings Q1_0 (128 elements of one bit) and Q2_0 (64 of two), which are read, not written.

Layouts and arithmetic are those of ggml-common.h and ggml-quants.c.
"""

from __future__ import annotations

import numpy as np

from maxtool.quantization import block
from maxtool.quantization.block import Codec, Float32, Records
from maxtool.quantization.encoding import QuantizationEncoding

Q1_0 = block.layout(("d", "<f2"), ("qs", "u1", 16))
Q2_0 = block.layout(("d", "<f2"), ("qs", "u1", 16))


def decode_q1_0(blocks: Records, out: Float32) -> None:
    """``d`` where the bit is set, otherwise ``-d``."""
    quants = block.unpack(blocks["qs"], bits=1, run=1)
    quants <<= np.uint8(1)
    block.centred(quants, 1, block.column(blocks["d"]), out)


def decode_q2_0(blocks: Records, out: Float32) -> None:
    """``d * (q - 1)``."""
    block.centred(block.unpack(blocks["qs"], bits=2, run=1), 1, block.column(blocks["d"]), out)


CODECS = {
    QuantizationEncoding.Q1_0: Codec(Q1_0, decode_q1_0),
    QuantizationEncoding.Q2_0: Codec(Q2_0, decode_q2_0),
}
