"""The 256-element encodings Q3_K and Q6_K, whose groups have a scale alone, and Q8_K.

Layouts and arithmetic are those of ggml-common.h and ggml-quants.c; float32 throughout, so results
are the same bit for bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization import block, primitives, weighing
from maxtool.quantization.block import BlockColumns, Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.quantization.searches import fit_cubic, fit_symmetric

Q3_K = block.layout(("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2"))
Q6_K = block.layout(("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2"))
Q8_K = block.layout(("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16))

GROUP = 16  # elements that share a scale
# The levels of elements and, in Q3_K, of scales reach from minus these to one less.
ZERO_3, ZERO_6, ZERO_SCALE_3 = 4, 32, 32


def decode_q3_k(blocks: Records, out: Float32) -> None:
    """``d * (scale - 32) * (q - 4 where the mask bit is clear)``, 16 groups of 6-bit scales."""
    quants = block.unpack(blocks["hmask"], bits=1, run=32)
    quants <<= np.uint8(2)
    quants |= block.unpack(blocks["qs"], bits=2, run=32)
    block.centred(quants, ZERO_3, _scales_3(blocks), out)


def decode_q6_k(blocks: Records, out: Float32) -> None:
    """``d * scale * (q - 32)``, with 16 groups of signed 8-bit scales."""
    quants = block.unpack(blocks["qh"], bits=2, run=32)
    quants <<= np.uint8(4)
    quants |= block.unpack(blocks["ql"], bits=4, run=64)
    block.centred(quants, ZERO_6, _scales_6(blocks), out)


def decode_q8_k(blocks: Records, out: Float32) -> None:
    """``d * q`` with a float32 ``d``; ``bsums`` serve dot products only."""
    block.scaled(blocks["qs"], block.column(blocks["d"]), out)


def encode_q3_k(columns: BlockColumns, records: Records) -> None:
    """Find scales, round them, and then the elements by what they decode to."""
    values, weights = block.grouped(columns.values, GROUP), None
    if columns.importance is not None:
        weights = weighing.by_block(columns.values, columns.importance, GROUP, 2)
    levels, scales, scale, scale_levels = _search_3(values, weights, len(records))
    records["d"] = primitives.finite(scale, scales)
    low, high = scale_levels & np.uint8(15), scale_levels >> np.uint8(4)
    block.fill(records["scales"][:, :8], block.pack(low, bits=4, run=8))
    block.fill(records["scales"][:, 8:], block.pack(high, bits=2, run=4))
    quants = _rounded_again(values, levels, _scales_3(records), ZERO_3)
    block.fill(records["hmask"], block.pack(quants >> np.uint8(2), bits=1, run=32))
    block.fill(records["qs"], block.pack(quants & np.uint8(3), bits=2, run=32))


def _search_3(
    values: Float32, weights: Float32 | None, blocks: int
) -> tuple[Float32, Float32, Float32, UInt8]:
    """Levels of elements, the scales ``[groups, blocks]``, their scale, and their levels."""
    if weights is None:
        flat, levels = fit_cubic(values, ZERO_3)
        scales = flat.reshape(-1, blocks)
        return levels, scales, *_largest_lowest(scales)
    fit = fit_symmetric(values, weights, ZERO_3)
    scales, sums = (each.reshape(-1, blocks) for each in (fit.scale, primitives.total(weights)))
    outer = fit_symmetric(scales, sums, ZERO_SCALE_3)
    scale_levels = outer.levels(scales, ZERO_SCALE_3).astype(np.uint8)
    return fit.levels(values, ZERO_3), scales, outer.scale, scale_levels


def encode_q6_k(columns: BlockColumns, records: Records) -> None:
    """Find scales, round them, and then the elements by what they decode to."""
    values = block.grouped(columns.values, GROUP)
    weights = values * values
    if columns.importance is not None:
        weights = block.grouped(columns.importance, GROUP)
    fit = fit_symmetric(values, weights, ZERO_6)
    scales = fit.scale.reshape(-1, len(records))
    largest = primitives.first_largest(scales)
    factor = np.float32(-128) / largest
    records["d"] = primitives.ONE / factor
    levels = np.minimum(primitives.nearest(scales * factor), np.float32(127))
    block.fill(records["scales"], primitives.integers(levels, np.int8))
    quants = _rounded_again(values, fit.levels(values, ZERO_6), _scales_6(records), ZERO_6)
    block.fill(records["qh"], block.pack(quants >> np.uint8(4), bits=2, run=32))
    block.fill(records["ql"], block.pack(quants & np.uint8(15), bits=4, run=64))
    records[np.abs(largest) < primitives.NEGLIGIBLE] = np.zeros((), Q6_K)
    records["d"] = primitives.finite(records["d"], scales)


def _rounded_again(values: Float32, levels: Float32, scales: Float32, zero: int) -> UInt8:
    """Levels by the scales ``[blocks, groups]`` that are stored; where these are zero, as found."""
    steps = scales.T.reshape(-1)
    exact = primitives.rounded(values / steps, -zero, zero - 1)
    exact += np.float32(zero)
    np.copyto(exact, levels, where=steps == 0)
    return block.ungrouped(exact.astype(np.uint8), len(scales))


def _largest_lowest(scales: Float32) -> tuple[Float32, UInt8]:
    """Let the scale of largest magnitude have the lowest level, -32; returns levels from 0."""
    largest = primitives.first_largest(scales)
    factor = np.float32(-ZERO_SCALE_3) / largest
    levels = primitives.integers(primitives.nearest(scales * factor), np.int8)
    levels = np.clip(levels, -ZERO_SCALE_3, ZERO_SCALE_3 - 1) + np.int8(ZERO_SCALE_3)
    levels[:, largest == 0] = 0
    return np.where(largest != 0, primitives.ONE / factor, primitives.ZERO), levels.view(np.uint8)


def _scales_3(blocks: Records) -> Float32:
    """The 16 scales of Q3_K, times ``d``: four low bits of each, then the two high ones."""
    low = block.unpack(blocks["scales"][:, :8], bits=4, run=8)
    high = block.unpack(blocks["scales"][:, 8:], bits=2, run=4)
    scales = (low | (high << np.uint8(4))).astype(np.float32) - np.float32(ZERO_SCALE_3)
    return block.column(blocks["d"]) * scales


def _scales_6(blocks: Records) -> Float32:
    scales: NDArray[np.int8] = blocks["scales"]
    return block.column(blocks["d"]) * scales.astype(np.float32)


CODECS = {
    QuantizationEncoding.Q3_K: Codec(Q3_K, decode_q3_k, encode_q3_k, searches=True),
    QuantizationEncoding.Q6_K: Codec(Q6_K, decode_q6_k, encode_q6_k, searches=True),
    QuantizationEncoding.Q8_K: Codec(Q8_K, decode_q8_k),
}
