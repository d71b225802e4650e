"""The 256-element encodings Q2_K, Q4_K and Q5_K, whose groups have a scale and a minimum each.

Layouts and arithmetic are those of ggml-common.h and ggml-quants.c; float32 throughout, so results
are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from maxtool.quantization import block, primitives, weighing
from maxtool.quantization.block import BlockColumns, Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.quantization.searches import AffineSearch, fit_affine, fit_positive

Q2_K = block.layout(("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2"))
Q4_K = block.layout(("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128))
Q5_K = block.layout(
    ("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)
)


@dataclass(frozen=True, slots=True)
class Family:
    """Storage of an encoding's blocks, and its searches for scales.

    Attributes:
        group: Elements that share a scale.
        top: The highest level of a scale or a minimum that a search aims at.
        limits: What such levels are clamped to, where columns are equally important and where
            importance is known; negative ones wrap around before, to bytes near 255.
        search: Where columns are equally important, for levels of the elements.
        weigh: The weight of each element then.
        weighted_search: Where importance is known.
        breadth: What the mean square of a block is multiplied by there.
        scales: Reads the scales and minima of records, ``[blocks, groups]``.
        fill_scales: Stores their levels, ``[groups, blocks]``.
        quants: Reads the levels of the elements.
        fill_quants: Stores them, ``[elements, blocks]``.
    """

    group: int
    top: int
    limits: tuple[int, int]
    search: AffineSearch
    weigh: Callable[[Float32], Float32]
    weighted_search: AffineSearch
    breadth: int
    scales: Callable[[Records], tuple[Float32, Float32]]
    fill_scales: Callable[[Records, UInt8, UInt8], None]
    quants: Callable[[Records], UInt8]
    fill_quants: Callable[[Records, UInt8], None]


def _decode(family: Family, blocks: Records, out: Float32) -> None:
    """``d * scale * q - dmin * min`` for each group."""
    scales, minima = family.scales(blocks)
    block.scaled(family.quants(blocks), scales, out)
    out -= block.spread(minima, out)


def _encode(family: Family, columns: BlockColumns, records: Records) -> None:
    """Find scales and minima, round them, and then the elements by what they decode to."""
    values = block.grouped(columns.values, family.group)
    weights, search = _weights(family, columns, values)
    fit = fit_affine(values, weights, search)
    shape = (-1, len(records))
    scales, minima = fit.scale.reshape(shape), (-fit.least).reshape(shape)
    if columns.importance is None:
        fit_scales = _largest_on_top
    else:
        fit_scales = partial(fit_positive, weights=primitives.total(weights).reshape(shape))
    scale, scale_levels = fit_scales(scales, top=family.top)
    minimum, minimum_levels = fit_scales(minima, top=family.top)
    records["d"] = primitives.finite(scale, scales)
    records["dmin"] = primitives.finite(minimum, minima)
    limit = np.uint8(family.limits[columns.importance is not None])
    family.fill_scales(records, *np.minimum([scale_levels, minimum_levels], limit))
    steps, offsets = (numbers.T.reshape(-1) for numbers in family.scales(records))
    levels = primitives.rounded((values + offsets) / steps, 0, search.top)
    if not steps.all():
        np.copyto(levels, fit.levels(values, search), where=steps == 0)
    family.fill_quants(records, block.ungrouped(levels.astype(np.uint8), len(records)))


def _weights(
    family: Family, columns: BlockColumns, values: Float32
) -> tuple[Float32, AffineSearch]:
    """The weights of grouped values, and the search that goes with them."""
    if columns.importance is None:
        return family.weigh(values), family.search
    importance, group = columns.importance, family.group
    weights = weighing.by_block(columns.values, importance, group, family.breadth)
    return weights, family.weighted_search


def _magnitudes(values: Float32) -> Float32:
    return np.abs(values)


def _raised_magnitudes(values: Float32) -> Float32:
    """Magnitudes, each more by the root of the group's mean square."""
    return np.sqrt(weighing.mean_square(values)) + np.abs(values)


def _largest_on_top(scales: Float32, top: int) -> tuple[Float32, UInt8]:
    """The scale of scales ``[groups, blocks]`` by which the largest becomes ``top``, and levels."""
    most = primitives.largest(scales)
    factor = np.where(most > 0, np.float32(top) / most, primitives.ZERO)
    levels = primitives.nearest(scales * factor)
    return most / np.float32(top), primitives.integers(levels, np.uint8)


def _four_bit_scales(blocks: Records) -> tuple[Float32, Float32]:
    """The 16 scales and 16 minima of Q2_K, already times ``d`` and ``dmin``."""
    scales = (blocks["scales"] & np.uint8(15)).astype(np.float32)
    minima = (blocks["scales"] >> np.uint8(4)).astype(np.float32)
    return block.column(blocks["d"]) * scales, block.column(blocks["dmin"]) * minima


def _fill_four_bit_scales(records: Records, scales: UInt8, minima: UInt8) -> None:
    block.fill(records["scales"], scales | minima << np.uint8(4))


def _six_bit_scales(blocks: Records) -> tuple[Float32, Float32]:
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


def _fill_six_bit_scales(records: Records, scales: UInt8, minima: UInt8) -> None:
    """Undo ``_six_bit_scales``."""
    both = np.stack([scales, minima])
    first = both[:, :4] | both[:, 4:] >> np.uint8(4) << np.uint8(6)
    last = both[0, 4:] & np.uint8(15) | both[1, 4:] << np.uint8(4)
    block.fill(records["scales"], np.concatenate([*first, last]))


def _two_bits(blocks: Records) -> UInt8:
    return block.unpack(blocks["qs"], bits=2, run=32)


def _fill_two_bits(records: Records, quants: UInt8) -> None:
    block.fill(records["qs"], block.pack(quants, bits=2, run=32))


def _four_bits(blocks: Records) -> UInt8:
    return block.unpack(blocks["qs"], bits=4, run=32)


def _fill_four_bits(records: Records, quants: UInt8) -> None:
    block.fill(records["qs"], block.pack(quants, bits=4, run=32))


def _five_bits(blocks: Records) -> UInt8:
    quants = block.unpack(blocks["qh"], bits=1, run=32)
    quants <<= np.uint8(4)
    quants |= _four_bits(blocks)
    return quants


def _fill_five_bits(records: Records, quants: UInt8) -> None:
    block.fill(records["qh"], block.pack(quants >> np.uint8(4), bits=1, run=32))
    _fill_four_bits(records, quants & np.uint8(15))


FAMILIES = {
    QuantizationEncoding.Q2_K: (
        Q2_K,
        Family(
            16,
            15,
            (255, 255),
            AffineSearch(3, -0.5, 0.1, 15, absolute=True),
            _magnitudes,
            AffineSearch(3, -0.9, 0.05, 36),
            1,
            _four_bit_scales,
            _fill_four_bit_scales,
            _two_bits,
            _fill_two_bits,
        ),
    ),
    QuantizationEncoding.Q4_K: (
        Q4_K,
        Family(
            32,
            63,
            (63, 255),
            AffineSearch(15, -1.0, 0.1, 20),
            _raised_magnitudes,
            AffineSearch(15, -0.9, 0.05, 36),
            2,
            _six_bit_scales,
            _fill_six_bit_scales,
            _four_bits,
            _fill_four_bits,
        ),
    ),
    QuantizationEncoding.Q5_K: (
        Q5_K,
        Family(
            32,
            63,
            (63, 63),
            AffineSearch(31, -0.5, 0.1, 15),
            _raised_magnitudes,
            AffineSearch(31, -0.9, 0.05, 36),
            2,
            _six_bit_scales,
            _fill_six_bit_scales,
            _five_bits,
            _fill_five_bits,
        ),
    ),
}

CODECS = {
    encoding: Codec(layout, partial(_decode, family), partial(_encode, family), searches=True)
    for encoding, (layout, family) in FAMILIES.items()
}
