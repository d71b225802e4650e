"""The 32-element encodings Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q8_1.

Arithmetic is float32 throughout, in the order of ggml-quants.c's ``*_ref`` functions, so results
are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from maxtool.quantization import block, primitives, tables, weighing
from maxtool.quantization.block import BlockColumns, Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.quantization.searches import AffineSearch, fit_affine, fit_symmetric

Q4_0 = block.layout(("d", "<f2"), ("qs", "u1", 16))
Q4_1 = block.layout(("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16))
Q5_0 = block.layout(("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16))
Q5_1 = block.layout(("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16))
Q8_0 = block.layout(("d", "<f2"), ("qs", "i1", 32))
Q8_1 = block.layout(("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32))

# The float32 just below one half: adding it and truncating rounds halves away from zero exactly,
# where adding one half itself would round 0.49999997 up.
BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))
# The low four bits of eight bytes.
LOW_BITS = np.uint64(0x0F0F_0F0F_0F0F_0F0F)
SIGN = np.uint32(0x8000_0000)

Layout = np.dtype[np.void]
# Small integers out of the records, and into them.
Quants = Callable[[Records], UInt8]
Fill = Callable[[Records, UInt8], None]


def _nibbles(blocks: Records) -> UInt8:
    words = np.ascontiguousarray(blocks["qs"]).view(np.uint64)
    values = np.empty((len(blocks), 4), np.uint64)
    for half in range(2):
        np.right_shift(words[:, half], np.uint64(0), out=values[:, half])
        np.right_shift(words[:, half], np.uint64(4), out=values[:, 2 + half])
    values &= LOW_BITS
    return values.view(np.uint8)


def _five_bits(blocks: Records) -> UInt8:
    quants = _nibbles(blocks)
    quants |= tables.bit_bytes(blocks["qh"], 0x10)
    return quants


def decode_q8(blocks: Records, out: Float32) -> None:
    """``d * q``; Q8_1's ``s`` is a sum kept for dot products and not needed here."""
    block.scaled(blocks["qs"], block.column(blocks["d"]), out)


def encode_q8_0(columns: BlockColumns, records: Records) -> None:
    """The largest magnitude becomes 127; halves round away from zero."""
    scale = columns.magnitude / np.float32(127)
    records["d"] = scale
    quants = columns.values
    quants *= block.inverse(scale)
    half = quants.view(np.uint32) & SIGN
    half |= BELOW_HALF.view(np.uint32)
    quants += half.view(np.float32)
    block.fill(records["qs"], quants.astype(np.int8))


def _encode_symmetric(fill: Fill, zero: int, columns: BlockColumns, records: Records) -> None:
    """The first element of largest magnitude becomes ``-zero`` exactly, or a search says."""
    if (weights := _weights(columns)) is not None:
        fit = fit_symmetric(columns.values, weights, zero)
        records["d"] = fit.scale
        fill(records, fit.levels(columns.values, zero).astype(np.uint8))
        return
    records["d"] = scale = _first_largest(columns) / np.float32(-zero)
    factor = block.inverse(scale)
    quants = columns.values
    quants *= factor
    quants += np.float32(zero + 0.5)
    whole = quants.astype(np.uint8)
    # 1 / scale is infinite: ggml's quants, of infinities and NaN, are 0 on common processors.
    whole[:, (factor == 0) & (scale != 0)] = 0
    fill(records, np.minimum(whole, np.uint8(2 * zero - 1), out=whole))


def _first_largest(columns: BlockColumns) -> Float32:
    """Each block's element of largest magnitude, with its sign; the first one of several."""
    least, most = columns.least, columns.most
    largest = np.where(most > -least, most, least)
    ties = np.flatnonzero(most == -least)
    if ties.size:
        tied = columns.rows(ties)
        where = np.abs(tied).argmax(axis=1, keepdims=True)
        largest[ties] = np.take_along_axis(tied, where, axis=1)[:, 0]
    return largest + primitives.ZERO  # never a negative zero


def _encode_affine(fill: Fill, steps: int, columns: BlockColumns, records: Records) -> None:
    """Minimum and range, in ``steps`` steps: the extremes become 0 and ``steps``, or as found."""
    if (weights := _weights(columns)) is not None:
        search = weighted_search(steps)
        fit = fit_affine(columns.values, weights, search)
        records["d"], records["m"] = fit.scale, fit.least
        fill(records, fit.levels(columns.values, search).astype(np.uint8))
        return
    least = columns.least
    zeros = np.flatnonzero(least == 0)
    if zeros.size:  # of zeros of both signs, the first one
        some = columns.rows(zeros)
        where = (some == 0).argmax(axis=1, keepdims=True)
        least[zeros] = np.take_along_axis(some, where, axis=1)[:, 0]
    scale = (columns.most - least) / np.float32(steps)
    scale += primitives.ZERO  # never a negative zero
    records["d"], records["m"] = scale, least
    quants = columns.values
    quants -= least
    quants *= block.inverse(scale)
    quants += np.float32(0.5)
    whole = quants.astype(np.uint8)
    fill(records, np.minimum(whole, np.uint8(steps), out=whole))


def weighted_search(steps: int) -> AffineSearch:
    """Return the search for a range and a minimum where importance is known."""
    return AffineSearch(steps, -0.9, 0.05, 36)


def _weights(columns: BlockColumns) -> Float32 | None:
    if columns.importance is None:
        return None
    return weighing.tempered(columns.values, columns.importance, columns.row_power)


def _fill_nibbles(records: Records, quants: UInt8) -> None:
    block.fill(records["qs"], block.pairs(quants))


def _fill_five_bits(records: Records, quants: UInt8) -> None:
    fifth = (quants >> np.uint8(4)).reshape(4, 8, -1)
    fifth <<= np.arange(8, dtype=np.uint8)[:, None]
    block.fill(records["qh"], np.bitwise_or.reduce(fifth, axis=1))
    quants &= np.uint8(15)
    _fill_nibbles(records, quants)


def _symmetric(layout: Layout, quants: Quants, fill: Fill, zero: int) -> Codec:
    """``d * (q - zero)``."""

    def decode(blocks: Records, out: Float32) -> None:
        block.centred(quants(blocks), zero, block.column(blocks["d"]), out)

    return Codec(layout, decode, partial(_encode_symmetric, fill, zero), by_rows=True)


def _affine(layout: Layout, quants: Quants, fill: Fill, steps: int) -> Codec:
    """``d * q + m``."""

    def decode(blocks: Records, out: Float32) -> None:
        block.scaled(quants(blocks), block.column(blocks["d"]), out)
        out += block.spread(block.column(blocks["m"]), out)

    return Codec(layout, decode, partial(_encode_affine, fill, steps), by_rows=True)


CODECS = {
    QuantizationEncoding.Q4_0: _symmetric(Q4_0, _nibbles, _fill_nibbles, 8),
    QuantizationEncoding.Q4_1: _affine(Q4_1, _nibbles, _fill_nibbles, 15),
    QuantizationEncoding.Q5_0: _symmetric(Q5_0, _five_bits, _fill_five_bits, 16),
    QuantizationEncoding.Q5_1: _affine(Q5_1, _five_bits, _fill_five_bits, 31),
    QuantizationEncoding.Q8_0: Codec(Q8_0, decode_q8, encode_q8_0),
    QuantizationEncoding.Q8_1: Codec(Q8_1, decode_q8),
}
