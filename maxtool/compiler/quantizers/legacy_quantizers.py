"""Quantizers of the 32-element encodings, as ``quantization/legacy.py`` has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantizers.batches import Batch, Quantize
from maxtool.compiler.quantizers.fits import fit_affine, fit_symmetric
from maxtool.compiler.quantizers.lanes import SIGN, Lanes
from maxtool.compiler.quantizers.weights import fill_tempered
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.legacy import BELOW_HALF, weighted_search

ELEMENTS = 32


def _q8_0(batch: Batch) -> b.Expr:
    """The largest magnitude becomes 127; halves round away from zero."""
    lanes = batch.lanes
    largest = lanes.magnitude(lanes.first_largest(ELEMENTS, batch.value))
    scale = b.let(largest / lanes.number(127))
    factor = lanes.inverse(scale)
    quants = lanes.table(ELEMENTS, dtype="uint32")
    half = lanes.bits(int(BELOW_HALF.view("u4")))
    with T.serial(b.integer(ELEMENTS)) as element:
        scaled = lanes.product(batch.value(element), factor)
        nudge = lanes.as_floats((lanes.as_bits(scaled) & lanes.bits(SIGN)) | half)
        lanes.put(quants, lanes.integers(scaled + nudge), element)
    batch.write_halves(0, [lanes.half(scale)])
    batch.write_packed(2, quants, bits=8, run=ELEMENTS)
    return _nothing(lanes)


def _symmetric(zero: int, batch: Batch) -> b.Expr:
    """The first element of largest magnitude becomes ``-zero`` exactly."""
    if batch.importance is not None:
        return _weighed_symmetric(zero, batch)
    lanes = batch.lanes
    scale = b.let(lanes.first_largest(ELEMENTS, batch.value) / lanes.number(-zero))
    factor = lanes.inverse(scale)
    # 1 / scale is infinite: ggml's quants, of infinities and NaN, are 0 on common processors.
    tiny = b.let(lanes.magnitude(factor)) <= lanes.number(0)
    tiny = tirx.And(tiny, lanes.magnitude(scale) > lanes.number(0))
    top = b.let(T.Select(tiny, lanes.number(0), lanes.number(2 * zero - 1)))
    quants = lanes.table(ELEMENTS, dtype="uint32")
    with T.serial(b.integer(ELEMENTS)) as element:
        raised = lanes.product(batch.value(element), factor) + lanes.number(zero + 0.5)
        _put_up_to(lanes, quants, raised, top, element)
    batch.write_halves(0, [lanes.half(scale)])
    _write_quants(batch, 2, quants, zero > 8)
    return _nothing(lanes)


def _affine(steps: int, batch: Batch) -> b.Expr:
    """Minimum and range: the extremes become 0 and ``steps``."""
    if batch.importance is not None:
        return _weighed_affine(steps, batch)
    lanes = batch.lanes
    least, most = lanes.extremes(ELEMENTS, batch.value)
    scale = b.let((most - least) / lanes.number(steps) + lanes.zero())
    factor = lanes.inverse(scale)
    quants = lanes.table(ELEMENTS, dtype="uint32")
    with T.serial(b.integer(ELEMENTS)) as element:
        raised = lanes.product(batch.value(element) - least, factor) + lanes.number(0.5)
        _put_up_to(lanes, quants, raised, lanes.number(steps), element)
    batch.write_halves(0, [lanes.half(scale), lanes.half(least)])
    _write_quants(batch, 4, quants, steps > 15)
    # A range that overflows makes an infinite scale, and what is divided by it is not finite.
    return tirx.Not(lanes.is_finite(scale))


def _weighed_symmetric(zero: int, batch: Batch) -> b.Expr:
    """A search says what the scale is."""
    lanes, quants = batch.lanes, batch.lanes.table(ELEMENTS, dtype="uint32")
    scale, factor = fit_symmetric(lanes, ELEMENTS, batch.value, _weights(batch), zero)
    with T.serial(b.integer(ELEMENTS)) as element:
        scaled = lanes.product(batch.value(element), factor)
        level = b.let(lanes.rounded(scaled, -zero, zero - 1) + lanes.number(zero))
        level = b.let(T.Select(lanes.is_nonzero(factor), level, lanes.number(0)))
        lanes.put(quants, lanes.integers(level), element)
    batch.write_halves(0, [lanes.half(scale)])
    _write_quants(batch, 2, quants, zero > 8)
    return tirx.Not(lanes.is_finite(scale))


def _weighed_affine(steps: int, batch: Batch) -> b.Expr:
    """A search says what the scale and the minimum are."""
    lanes, quants = batch.lanes, batch.lanes.table(ELEMENTS, dtype="uint32")
    search = weighted_search(steps)
    fit = fit_affine(lanes, ELEMENTS, batch.value, _weights(batch), search)
    scale, minimum, factor, origin = fit
    with T.serial(b.integer(ELEMENTS)) as element:
        scaled = lanes.product(b.let(batch.value(element) - origin), factor)
        lanes.put(quants, lanes.integers(lanes.rounded(scaled, 0, steps)), element)
    least = b.let(lanes.as_floats(lanes.as_bits(minimum) ^ lanes.bits(SIGN)))
    batch.write_halves(0, [lanes.half(scale), lanes.half(least)])
    _write_quants(batch, 4, quants, steps > 15)
    return tirx.Or(tirx.Not(lanes.is_finite(scale)), tirx.Not(lanes.is_finite(least)))


def _weights(batch: Batch) -> Callable[[b.Expr], b.Expr]:
    """The weight of each element, by its number."""
    weights = batch.lanes.table(ELEMENTS)
    fill_tempered(batch, weights, 0, batch.row_power)
    return lambda element: batch.lanes.get(weights, element)


def _put_up_to(
    lanes: Lanes, quants: b.Buffer, raised: b.Expr, top: b.Expr, element: b.Expr
) -> None:
    """Store positive numbers as integers, at most ``top``."""
    raised = b.let(raised)
    lanes.put(quants, lanes.integers(T.Select(raised > top, top, raised)), element)


def _write_quants(batch: Batch, offset: int, quants: b.Buffer, fifth: bool) -> None:
    """Write four bits of each integer, after the fifth bits of all."""
    lanes = batch.lanes
    if fifth:
        word = lanes.variable(lanes.bits(0))
        with T.serial(b.integer(ELEMENTS)) as element:
            bit = (lanes.get(quants, element) >> lanes.bits(4)) & lanes.bits(1)
            place = lanes.broadcast(T.Cast("uint32", element))
            word.set(word.value | (bit << place))
        batch.write_words(offset, [b.let(word.value)])
        offset += 4
    batch.write_packed(offset, quants, bits=4, run=ELEMENTS // 2)


def _nothing(lanes: Lanes) -> b.Expr:
    """Nowhere."""
    return lanes.bits(0) > lanes.bits(1)


QUANTIZERS: dict[QuantizationEncoding, Quantize] = {
    QuantizationEncoding.Q4_0: partial(_symmetric, 8),
    QuantizationEncoding.Q4_1: partial(_affine, 15),
    QuantizationEncoding.Q5_0: partial(_symmetric, 16),
    QuantizationEncoding.Q5_1: partial(_affine, 31),
    QuantizationEncoding.Q8_0: _q8_0,
}
