"""Decoders of the encodings IQ1_S to IQ3_S, whose elements are looked up in grids.

Layouts are those of ggml-common.h and arithmetic that of the gguf package, whose results these are
bit for bit: a sign only flips the product's sign, so it is applied to the integers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization import block, tables
from maxtool.quantization.block import Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding

IQ2_XXS = block.layout(("d", "<f2"), ("qs", "<u4", 16))
IQ2_XS = block.layout(("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8))
IQ2_S = block.layout(
    ("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)
)
IQ3_XXS = block.layout(("d", "<f2"), ("qs", "u1", 64), ("scales", "<u4", 8))
IQ3_S = block.layout(
    ("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)
)
IQ1_S = block.layout(("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8))
IQ1_M = block.layout(("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4))


def decode_iq2_xxs(blocks: Records, out: Float32) -> None:
    """8 groups: four grid indices in one word; four sign codes and a 4-bit scale in the next."""
    words = blocks["qs"]
    index = np.ascontiguousarray(words[:, ::2]).view(np.uint8)
    last = np.ascontiguousarray(words[:, 1::2])
    packed = tables.from_grid("IQ2_XXS", index)
    quants = tables.negated(packed, tables.even_masks(), _sevens(last))
    block.scaled(quants, _half_steps(blocks, last >> np.uint32(28), 0.25), out)


def decode_iq2_xs(blocks: Records, out: Float32) -> None:
    """32 words of a 9-bit grid index and a 7-bit sign code; 16 groups of 4-bit scales."""
    words = blocks["qs"]
    packed = tables.from_grid("IQ2_XS", words & np.uint16(511))
    quants = tables.negated(packed, tables.even_masks(), words >> np.uint16(9))
    block.scaled(quants, _half_steps(blocks, unpack_each(blocks["scales"], 4), 0.25), out)


def decode_iq2_s(blocks: Records, out: Float32) -> None:
    """10-bit grid indices, a sign bit for each element, 16 groups of 4-bit scales."""
    index = _joined(blocks["qs"], unpack_each(blocks["qh"], 2))
    packed = tables.from_grid("IQ2_S", index)
    quants = tables.negated(packed, tables.bit_masks(), blocks["signs"])
    block.scaled(quants, _half_steps(blocks, unpack_each(blocks["scales"], 4), 0.25), out)


def decode_iq3_xxs(blocks: Records, out: Float32) -> None:
    """64 grid indices of four elements; 8 words of four sign codes and a 4-bit scale."""
    words = blocks["scales"]
    packed = tables.from_grid("IQ3_XXS", blocks["qs"]).view(np.uint64)
    quants = tables.negated(packed, tables.even_masks(), _sevens(words))
    block.scaled(quants, _half_steps(blocks, words >> np.uint32(28), 0.5), out)


def decode_iq3_s(blocks: Records, out: Float32) -> None:
    """9-bit grid indices of four elements, a sign bit for each, 8 groups of 4-bit scales."""
    index = _joined(blocks["qs"], unpack_each(blocks["qh"], 1))
    packed = tables.from_grid("IQ3_S", index).view(np.uint64)
    quants = tables.negated(packed, tables.bit_masks(), blocks["signs"])
    steps = np.uint8(2) * unpack_each(blocks["scales"], 4) + np.uint8(1)
    block.scaled(quants, block.column(blocks["d"]) * steps.astype(np.float32), out)


def decode_iq1_s(blocks: Records, out: Float32) -> None:
    """11-bit grid indices, and for each of 8 groups a 3-bit scale and the sign of the shift."""
    high = blocks["qh"]
    shift = (high >> np.uint16(12)) & np.uint16(8)
    places = np.array([0, 3, 6, 9], np.uint16)
    last = (high[:, :, None] >> places) & np.uint16(7) | shift[:, :, None]
    quants = tables.look_up(_shifted_grid(), _joined(blocks["qs"], last)).view(np.int8)
    scales = block.column(blocks["d"]) * _odd(high >> np.uint16(12))
    block.scaled(quants, scales * EIGHTH, out)


def decode_iq1_m(blocks: Records, out: Float32) -> None:
    """Decode IQ1_M: IQ1_S with a shift per 8 elements, a scale per 16, and ``d`` in four parts."""
    words = blocks["scales"]
    tops = (words & np.uint16(0xF000)) >> np.array([12, 8, 4, 0], np.uint16)
    d = np.bitwise_or.reduce(tops, axis=1).view(np.float16)
    steps = _odd(words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16))
    index = _joined(blocks["qs"], unpack_each(blocks["qh"], 4))
    quants = tables.look_up(_shifted_grid(), index).view(np.int8)
    block.scaled(quants, block.column(d) * steps.reshape(len(blocks), -1) * EIGHTH, out)


EIGHTH = np.float32(0.125)


@cache
def _shifted_grid() -> NDArray[Any]:
    """IQ1's grid times eight, shifted by +1 in the first half and by -1 in the second."""
    rows = tables.grid("IQ1_S").view(np.int8) * np.int8(8)
    return np.concatenate([rows + np.int8(1), rows - np.int8(1)]).view(np.uint64)


def unpack_each(packed: UInt8, bits: int) -> UInt8:
    """The small integers of each byte side by side, lowest first."""
    return block.unpack(packed, bits=bits, run=1)


def _sevens(words: NDArray[Any]) -> NDArray[Any]:
    """The four 7-bit codes in the low bits of each word, ``[blocks, 4 * words]``."""
    codes = (words[:, :, None] >> np.array([0, 7, 14, 21], np.uint32)) & np.uint32(0x7F)
    return codes.reshape(len(words), -1)


def _joined(low: UInt8, high: NDArray[Any]) -> NDArray[np.uint16]:
    """Indices of more than eight bits: ``low + 256 * high``."""
    index = high.reshape(low.shape).astype(np.uint16)
    index <<= np.uint16(8)
    index |= low
    return index


def _half_steps(blocks: Records, steps: NDArray[Any], unit: float) -> Float32:
    """``d * (0.5 + step) * unit``."""
    factors = steps.astype(np.float32)
    factors += np.float32(0.5)
    scales = block.column(blocks["d"]) * factors
    scales *= np.float32(unit)
    return scales


def _odd(codes: NDArray[Any]) -> Float32:
    """``2 * step + 1`` of 3-bit steps."""
    return (np.uint16(2) * (codes & np.uint16(7)) + np.uint16(1)).astype(np.float32)


CODECS = {
    QuantizationEncoding.IQ2_XXS: Codec(IQ2_XXS, decode_iq2_xxs),
    QuantizationEncoding.IQ2_XS: Codec(IQ2_XS, decode_iq2_xs),
    QuantizationEncoding.IQ2_S: Codec(IQ2_S, decode_iq2_s),
    QuantizationEncoding.IQ3_XXS: Codec(IQ3_XXS, decode_iq3_xxs),
    QuantizationEncoding.IQ3_S: Codec(IQ3_S, decode_iq3_s),
    QuantizationEncoding.IQ1_S: Codec(IQ1_S, decode_iq1_s),
    QuantizationEncoding.IQ1_M: Codec(IQ1_M, decode_iq1_m),
}
