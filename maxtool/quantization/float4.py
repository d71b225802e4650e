"""The encodings of 4-bit floats: MXFP4 (32 elements) and NVFP4 (4 groups of 16).

Elements are E2M1 (1 sign, 2 exponent and 1 mantissa bits) as in the OCP Microscaling Formats
specification, stored as integers twice their value; scales are half of what the formats say.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from maxtool.quantization import block, tables
from maxtool.quantization.block import BlockColumns, Codec, Float32, Int8, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding

MXFP4 = block.layout(("e", "u1"), ("qs", "u1", 16))
NVFP4 = block.layout(("d", "u1", 4), ("qs", "u1", 32))

SIGN = np.uint8(8)


def decode_mxfp4(blocks: Records, out: Float32) -> None:
    """``2**(e - 128) * value[q]``."""
    quants = tables.nibble_values(blocks["qs"], _value_table(), run=16)
    block.scaled(quants, power_scales(blocks["e"])[:, None], out)


def decode_nvfp4(blocks: Records, out: Float32) -> None:
    """``d / 2 * value[q]`` for each group, ``d`` of 4 exponent and 3 mantissa bits."""
    quants = tables.nibble_values(blocks["qs"], _value_table(), run=8)
    block.scaled(quants, tables.look_up(_group_scales(), blocks["d"]), out)


def encode_mxfp4(columns: BlockColumns, records: Records) -> None:
    """The nearest value; of two as near the one closer to zero."""
    magnitude = columns.magnitude
    exponent = np.floor(np.log2(magnitude)) + np.float32(125)
    # Below 2**-125 it is negative and wraps, as in the gguf package; such elements become 0.
    code = np.where(magnitude > 0, exponent, 0).astype(np.int32).astype(np.uint8)
    records["e"] = code
    scale = power_scales(code)
    negative = np.signbit(columns.values)
    sizes = np.abs(columns.values, out=columns.values)
    quants = np.zeros(sizes.shape, np.uint8)
    known = values()[:8].astype(np.float32)
    for lower, upper in pairwise(known):
        # Where the upper value would be infinite, it is never the nearest.
        reachable = np.isfinite(scale * upper)
        middle = np.where(reachable, scale * ((lower + upper) / 2), np.inf)
        quants += (sizes > middle).view(np.uint8)
    quants |= (negative & (quants > 0)).view(np.uint8) * SIGN
    block.fill(records["qs"], block.pairs(quants))


def power_scales(exponents: UInt8) -> Float32:
    """``2**(e - 128)``, the two smallest as the subnormals that they are."""
    normal = (exponents.astype(np.uint32) - np.uint32(1)) << np.uint32(23)
    subnormal = np.uint32(0x0020_0000) << exponents.astype(np.uint32)
    return np.where(exponents < 2, subnormal, normal).view(np.float32)


@cache
def values() -> Int8:
    """Return the 16 values of E2M1, doubled; minus zero is 0."""
    codes = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
    doubled = codes.astype(np.float32) * np.float32(2)
    integers: Int8 = doubled.astype(np.int8)
    return integers


@cache
def _value_table() -> NDArray[np.uint32]:
    return tables.nibble_table(values())


@cache
def _group_scales() -> Float32:
    """Half of each E4M3 scale; the sign bit is ignored, and 0x7F, a NaN, stands for 0."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    scale = np.where(exponent == 0, mantissa * 2.0**-9, normal) / 2
    scale[0x7F] = 0
    return scale.astype(np.float32)


CODECS = {
    QuantizationEncoding.MXFP4: Codec(MXFP4, decode_mxfp4, encode_mxfp4),
    QuantizationEncoding.NVFP4: Codec(NVFP4, decode_nvfp4),
}
