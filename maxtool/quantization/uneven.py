"""The encodings IQ4_NL (32 elements) and IQ4_XS (256), of 16 values with uneven steps.

Layouts and arithmetic are those of ggml-common.h and ggml-quants.c; float32 throughout, so results
are the same bit for bit.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization import block, primitives, tables, weighing
from maxtool.quantization.block import BlockColumns, Codec, Float32, Int8, Records
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.quantization.searches import fit_uneven

IQ4_NL = block.layout(("d", "<f2"), ("qs", "u1", 16))
IQ4_XS = block.layout(("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128))

GROUP = 32  # elements that share a scale
ZERO = 32  # IQ4_XS: what the levels of scales are above them
HIGH_BITS = np.arange(0, 16, 2, dtype=np.uint16)  # where scales_h has each scale's two high bits


def decode_iq4_nl(blocks: Records, out: Float32) -> None:
    """``d * value[q]``."""
    block.scaled(_quants(blocks), block.column(blocks["d"]), out)


def decode_iq4_xs(blocks: Records, out: Float32) -> None:
    """Decode IQ4_XS: as IQ4_NL, with 8 groups of 6-bit scales."""
    high = blocks["scales_h"][:, None] >> HIGH_BITS
    scales = block.unpack(blocks["scales_l"], bits=4, run=1)
    scales |= (high & np.uint16(3)).astype(np.uint8) << np.uint8(4)
    steps = scales.astype(np.float32) - np.float32(ZERO)
    block.scaled(_quants(blocks), block.column(blocks["d"]) * steps, out)


def encode_iq4_nl(columns: BlockColumns, records: Records) -> None:
    """Find a scale, and the values nearest to the elements by it."""
    scale = fit_uneven(columns.values, _weights(columns), values())
    records["d"] = scale
    _fill(records, columns.values, scale)


def encode_iq4_xs(columns: BlockColumns, records: Records) -> None:
    """Find scales, round them, and take the values nearest to the elements by these."""
    elements = block.grouped(columns.values, GROUP)
    scales = fit_uneven(elements, _weights(columns), values()).reshape(-1, len(records))
    scale = primitives.first_largest(scales) / np.float32(-ZERO)
    records["d"] = primitives.finite(scale, scales)
    levels = primitives.rounded(scales * _inverse(scale), -ZERO, ZERO - 1)
    _fill(records, elements, (scale * levels).reshape(-1))
    codes = (levels + np.float32(ZERO)).astype(np.uint8)
    block.fill(records["scales_l"], block.pack(codes & np.uint8(15), bits=4, run=1))
    high = (codes >> np.uint8(4)).astype(np.uint16) << HIGH_BITS[:, None]
    records["scales_h"] = np.bitwise_or.reduce(high, axis=0)


def _weights(columns: BlockColumns) -> Float32:
    """The weights of a block's elements, in groups."""
    if columns.importance is not None:
        return weighing.by_block(columns.values, columns.importance, GROUP, 2)
    elements: Float32 = block.grouped(columns.values, GROUP)
    return elements * elements


def _fill(records: Records, elements: Float32, scales: Float32) -> None:
    """Store the codes of the values nearest to ``element / scale``."""
    codes = primitives.nearest_codes(elements * _inverse(scales), values())
    quants = block.ungrouped(codes, len(records))
    block.fill(records["qs"], block.pack(quants, bits=4, run=16))


def _inverse(scales: Float32) -> Float32:
    """``1 / scale``, but 0 of 0."""
    return np.where(scales != 0, primitives.ONE / scales, primitives.ZERO)


def _quants(blocks: Records) -> Int8:
    return tables.nibble_values(blocks["qs"], _value_table(), run=16)


@cache
def values() -> Int8:
    """Return the 16 values, in ascending order."""
    from gguf.quants import IQ4_NL as QUANT_TYPE

    return np.array(QUANT_TYPE.kvalues, np.int8)


@cache
def _value_table() -> NDArray[np.uint32]:
    return tables.nibble_table(values())


CODECS = {
    QuantizationEncoding.IQ4_NL: Codec(IQ4_NL, decode_iq4_nl, encode_iq4_nl, searches=True),
    QuantizationEncoding.IQ4_XS: Codec(IQ4_XS, decode_iq4_xs, encode_iq4_xs, searches=True),
}
