"""Quantizers of Q3_K and Q6_K, as ``quantization/kquants_symmetric.py`` has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantizers.batches import Batch, Quantize
from maxtool.compiler.quantizers.fits import fit_cubic, fit_symmetric
from maxtool.compiler.quantizers.lanes import Lanes
from maxtool.compiler.quantizers.weights import fill_tempered, mean_square
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.kquants_symmetric import GROUP, ZERO_3, ZERO_6, ZERO_SCALE_3
from maxtool.quantization.primitives import NEGLIGIBLE

ELEMENTS = 256
GROUPS = ELEMENTS // GROUP
LOWEST_SCALE_6 = -128


def _q6_k(batch: Batch) -> b.Expr:
    """Find scales, round them, and then the elements by what they decode to."""
    lanes = batch.lanes
    scales, factors = lanes.table(GROUPS), lanes.table(GROUPS)
    with T.serial(GROUPS) as group:
        value, importance = _group(batch, group), batch.importance
        if importance is None:
            weight = partial(_square, lanes, value)
        else:
            weight = partial(_given, lanes, importance, group)
        scale, factor = fit_symmetric(lanes, GROUP, value, weight, ZERO_6)
        lanes.put(scales, scale, group)
        lanes.put(factors, factor, group)
    largest = lanes.first_largest(GROUPS, lambda group: lanes.get(scales, group))
    # Blocks whose scales are negligible become zeros.
    kept = lanes.magnitude(largest) >= lanes.number(NEGLIGIBLE)
    mask = b.let(tirx.Select(kept, lanes.bits(0xFFFF_FFFF), lanes.bits(0)))
    factor = b.let(lanes.number(LOWEST_SCALE_6) / largest)
    half = b.let(lanes.half(b.let(lanes.number(1) / factor)) & mask)
    scale, levels = lanes.widened(half), lanes.table(GROUPS, dtype="uint32")
    quants = lanes.table(ELEMENTS, dtype="uint32")
    with T.serial(GROUPS) as group:
        level = lanes.nearest(lanes.product(lanes.get(scales, group), factor))
        level = b.let(tirx.Select(level > lanes.number(127), lanes.number(127), level))
        lanes.put(levels, lanes.integers(level) & mask, group)
        step = lanes.product(scale, level)
        _round_group(batch, quants, group, step, ZERO_6, partial(_level_6, batch, factors, group))
    with T.serial(ELEMENTS) as element:
        lanes.put(quants, lanes.get(quants, element) & mask, element)
    batch.write_packed(0, quants, bits=4, run=64)
    batch.write_packed(128, quants, bits=2, run=32, shift=4)
    batch.write_packed(192, levels, bits=8, run=GROUPS)
    batch.write_halves(208, [half])
    return _any_not_finite(lanes, scales)


def _square(lanes: Lanes, value: Callable[[b.Expr], b.Expr], element: b.Expr) -> b.Expr:
    return lanes.product(value(element), value(element))


def _given(lanes: Lanes, importance: b.Buffer, group: b.Expr, element: b.Expr) -> b.Expr:
    return lanes.get(importance, group * GROUP + element)


def _level_6(batch: Batch, factors: b.Buffer, group: b.Expr, element: b.Expr) -> b.Expr:
    """The level of an element by the factor that was found; 0 in empty groups."""
    lanes, factor = batch.lanes, b.let(batch.lanes.get(factors, group))
    scaled = lanes.product(_group(batch, group)(element), factor)
    level = b.let(lanes.rounded(scaled, -ZERO_6, ZERO_6 - 1) + lanes.number(ZERO_6))
    return tirx.Select(lanes.is_nonzero(factor), level, lanes.number(0))


def _q3_k(batch: Batch) -> b.Expr:
    """Find scales, round them, and then the elements by what they decode to."""
    lanes = batch.lanes
    scales, found = lanes.table(GROUPS), lanes.table(GROUPS, GROUP)
    search = _search_3 if batch.importance is None else _weighed_search_3
    largest, factor, odd = search(batch, scales, found)
    half = lanes.half(largest)
    scale, levels = lanes.widened(half), lanes.table(GROUPS, dtype="uint32")
    quants, some = lanes.table(ELEMENTS, dtype="uint32"), lanes.is_nonzero(factor)
    with T.serial(GROUPS) as group:
        scaled = lanes.product(lanes.get(scales, group), factor)
        level = lanes.rounded(scaled, -ZERO_SCALE_3, ZERO_SCALE_3 - 1)
        level = b.let(tirx.Select(some, level, lanes.number(-ZERO_SCALE_3)))
        lanes.put(levels, lanes.integers(level + lanes.number(ZERO_SCALE_3)), group)
        step = lanes.product(scale, level)
        _round_group(batch, quants, group, step, ZERO_3, partial(lanes.get, found, group))
    batch.write_packed(0, quants, bits=1, run=32, shift=2)
    batch.write_packed(32, quants, bits=2, run=32)
    batch.write_packed(96, levels, bits=4, run=8)
    batch.write_packed(104, levels, bits=2, run=4, shift=4)
    batch.write_halves(108, [half])
    return tirx.Or(_any_not_finite(lanes, scales), odd)


def _search_3(batch: Batch, scales: b.Buffer, found: b.Buffer) -> tuple[b.Expr, b.Expr, b.Expr]:
    """Fill in scales and levels; returns the scale of scales, their factor, and what is odd.

    The factor is 0 where all scales are.
    """
    lanes, held = batch.lanes, batch.lanes.table(GROUP)
    with T.serial(GROUPS) as group:
        lanes.put(scales, fit_cubic(lanes, GROUP, _group(batch, group), ZERO_3, held), group)
        with T.serial(GROUP) as element:
            lanes.put(found, lanes.get(held, element), group, element)
    largest = lanes.first_largest(GROUPS, lambda group: lanes.get(scales, group))
    factor, nothing = b.let(lanes.number(-ZERO_SCALE_3) / largest), lanes.number(0)
    some = lanes.is_nonzero(largest)
    scale = b.let(tirx.Select(some, b.let(lanes.number(1) / factor), nothing))
    # A scale so small that its inverse is infinite has levels that wrap around.
    tiny = tirx.And(some, tirx.Not(lanes.is_finite(factor)))
    return scale, b.let(tirx.Select(some, factor, nothing)), tiny


def _weighed_search_3(
    batch: Batch, scales: b.Buffer, found: b.Buffer
) -> tuple[b.Expr, b.Expr, b.Expr]:
    """Do the same by importance: the scales are weighed by the weights of their groups."""
    lanes, weights, sums = batch.lanes, batch.lanes.table(GROUP), batch.lanes.table(GROUPS)
    power, zero = mean_square(batch, ELEMENTS, 2), lanes.number(ZERO_3)
    with T.serial(GROUPS) as group:
        fill_tempered(batch, weights, group * GROUP, power)
        value = _group(batch, group)
        scale, factor = fit_symmetric(lanes, GROUP, value, partial(lanes.get, weights), ZERO_3)
        (total,) = lanes.totals(GROUP, lambda e: [lanes.get(weights, e)], [0.0])
        lanes.put(scales, scale, group)
        lanes.put(sums, total, group)
        with T.serial(GROUP) as element:
            scaled = lanes.product(value(element), factor)
            level = b.let(lanes.rounded(scaled, -ZERO_3, ZERO_3 - 1) + zero)
            level = tirx.Select(lanes.is_nonzero(factor), level, lanes.number(0))
            lanes.put(found, level, group, element)
    scale, factor = fit_symmetric(
        lanes, GROUPS, partial(lanes.get, scales), partial(lanes.get, sums), ZERO_SCALE_3
    )
    return scale, factor, tirx.Not(lanes.is_finite(scale))


def _group(batch: Batch, group: b.Expr) -> Callable[[b.Expr], b.Expr]:
    return lambda element: batch.value(group * GROUP + element)


def _round_group(
    batch: Batch,
    quants: b.Buffer,
    group: b.Expr,
    step: b.Expr,
    zero: int,
    found: Callable[[b.Expr], b.Expr],
) -> None:
    """Levels by the scale that is stored; where it is zero, as found."""
    lanes = batch.lanes
    with T.serial(GROUP) as element:
        exact = b.let(batch.value(group * GROUP + element) / step)
        exact = b.let(lanes.rounded(exact, -zero, zero - 1) + lanes.number(zero))
        other = b.let(found(element))
        level = lanes.integers(b.let(tirx.Select(lanes.is_nonzero(step), exact, other)))
        lanes.put(quants, level, group * GROUP + element)


def _any_not_finite(lanes: Lanes, scales: b.Buffer) -> b.Expr:
    odd = lanes.variable(lanes.bits(0))
    with T.serial(GROUPS) as group:
        here = lanes.is_finite(b.let(lanes.get(scales, group)))
        odd.set(odd.value | tirx.Select(here, lanes.bits(0), lanes.bits(1)))
    return b.let(odd.value) > lanes.bits(0)


QUANTIZERS: dict[QuantizationEncoding, Quantize] = {
    QuantizationEncoding.Q3_K: _q3_k,
    QuantizationEncoding.Q6_K: _q6_k,
}
