"""Quantizers of IQ4_NL and IQ4_XS, as ``quantization/uneven.py`` has them."""

from __future__ import annotations

from functools import reduce

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantizers.batches import Batch, Quantize
from maxtool.compiler.quantizers.fits import fit_uneven, nearest_code
from maxtool.compiler.quantizers.weights import fill_tempered, mean_square
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.uneven import GROUP, ZERO, values

ELEMENTS = 256
GROUPS = ELEMENTS // GROUP


def _iq4_nl(batch: Batch) -> b.Expr:
    """Find a scale, and the values nearest to the elements by it."""
    lanes, quants = batch.lanes, batch.lanes.table(GROUP, dtype="uint32")
    power = None if batch.importance is None else mean_square(batch, GROUP, 2)
    scale = _fit(batch, b.integer(0), power)
    _fill(batch, quants, b.integer(0), scale)
    batch.write_halves(0, [lanes.half(scale)])
    batch.write_packed(2, quants, bits=4, run=16)
    return tirx.Not(lanes.is_finite(scale))


def _iq4_xs(batch: Batch) -> b.Expr:
    """Find scales, round them, and take the values nearest to the elements by these."""
    lanes = batch.lanes
    scales, codes = lanes.table(GROUPS), lanes.table(GROUPS, dtype="uint32")
    quants, odd = lanes.table(ELEMENTS, dtype="uint32"), lanes.variable(lanes.bits(0))
    power = None if batch.importance is None else mean_square(batch, ELEMENTS, 2)
    with T.serial(GROUPS) as group:
        found = _fit(batch, group * GROUP, power)
        lanes.put(scales, found, group)
        odd.set(odd.value | lanes.flags(tirx.Not(lanes.is_finite(found))))
    largest = lanes.first_largest(GROUPS, lambda group: lanes.get(scales, group))
    scale = b.let(largest / lanes.number(-ZERO))
    inverse = _inverse(batch, scale)
    with T.serial(GROUPS) as group:
        scaled = lanes.product(lanes.get(scales, group), inverse)
        level = lanes.rounded(scaled, -ZERO, ZERO - 1)
        lanes.put(codes, lanes.integers(b.let(level + lanes.number(ZERO))), group)
        _fill(batch, quants, group * GROUP, lanes.product(scale, level))
    each = [b.let(lanes.get(codes, group)) for group in range(GROUPS)]
    low = [(code & lanes.bits(15)) << lanes.bits(4 * place) for place, code in enumerate(each)]
    high = [(code >> lanes.bits(4)) << lanes.bits(2 * place) for place, code in enumerate(each)]
    joined = [b.let(reduce(lambda one, more: one | more, parts)) for parts in (high, low)]
    batch.write_halves(0, [lanes.half(scale), joined[0]])
    batch.write_words(4, [joined[1]])
    batch.write_packed(8, quants, bits=4, run=16)
    return odd.value > lanes.bits(0)


def _fit(batch: Batch, first: b.Expr, power: b.Expr) -> b.Expr:
    """The scale of a group; the weights without importance are the elements' squares."""
    lanes, weights = batch.lanes, batch.lanes.table(GROUP)

    def value(element: b.Expr) -> b.Expr:
        return batch.value(first + element)

    if batch.importance is not None:
        fill_tempered(batch, weights, first, power)
    else:
        with T.serial(GROUP) as element:
            lanes.put(weights, lanes.product(value(element), value(element)), element)
    return fit_uneven(lanes, GROUP, value, lambda element: lanes.get(weights, element), values())


def _fill(batch: Batch, quants: b.Buffer, first: b.Expr, scale: b.Expr) -> None:
    """Codes of the values nearest to ``element / scale``."""
    lanes, inverse = batch.lanes, _inverse(batch, scale)
    with T.serial(GROUP) as element:
        scaled = lanes.product(batch.value(first + element), inverse)
        lanes.put(quants, nearest_code(lanes, scaled, values()), first + element)


def _inverse(batch: Batch, scale: b.Expr) -> b.Expr:
    """``1 / scale``, but 0 of 0."""
    lanes = batch.lanes
    inverted = b.let(lanes.number(1) / scale)
    return b.let(tirx.Select(lanes.is_nonzero(scale), inverted, lanes.number(0)))


QUANTIZERS: dict[QuantizationEncoding, Quantize] = {
    QuantizationEncoding.IQ4_NL: _iq4_nl,
    QuantizationEncoding.IQ4_XS: _iq4_xs,
}
