"""Quantizers of Q2_K, Q4_K and Q5_K, as ``quantization/kquants_affine.py`` has them.

What they search for and where it is stored is read from that file's table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantizers.batches import Batch, Quantize
from maxtool.compiler.quantizers.fits import fit_affine, fit_positive
from maxtool.compiler.quantizers.lanes import Lanes
from maxtool.compiler.quantizers.weights import fill_tempered, mean_square
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.kquants_affine import FAMILIES, Family

ELEMENTS = 256
# Of each group: scale, minimum, factor and origin, and the sum of its weights.
FOUND, TOTAL = 5, 4

# Fills in the weights of a group: from its elements, as a function of their number.
Weigh = Callable[[Lanes, int, Callable[[b.Expr], b.Expr], b.Buffer], None]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an encoding's records, for this machine.

    Attributes:
        weigh: Fills in the weights of a group's elements.
        scales: At which byte the levels of scales and minima are written.
        write_scales: Writes them, ``[groups, lanes]`` each.
        halves: At which byte the scales of scales are written.
        quants: The planes of quants: their byte, and ``bits``, ``run`` and ``shift``.
    """

    weigh: Weigh
    scales: int
    write_scales: Callable[[Batch, int, b.Buffer, b.Buffer], None]
    halves: int
    quants: Sequence[tuple[int, int, int, int]]


def _quantize(encoding: QuantizationEncoding, batch: Batch) -> b.Expr:
    """Find scales and minima, round them, and then the elements by what they decode to."""
    family, form, lanes = FAMILIES[encoding][1], FORMS[encoding], batch.lanes
    groups = ELEMENTS // family.group
    fits = lanes.table(groups, FOUND)
    power = mean_square(batch, ELEMENTS, family.breadth) if batch.importance is not None else None
    with T.serial(b.integer(groups)) as group:
        _fit_group(family, form, batch, fits, group, power)
    fit_scales = _largest_on_top if batch.importance is None else _weighed
    scale, scale_levels, odd = fit_scales(family, lanes, fits, 0)
    minimum, minimum_levels, odd_too = fit_scales(family, lanes, fits, 1)
    halves = [lanes.half(scale), lanes.half(minimum)]
    batch.write_halves(form.halves, halves)
    form.write_scales(batch, form.scales, scale_levels, minimum_levels)
    quants = lanes.table(ELEMENTS, dtype="uint32")
    steps = [lanes.widened(half) for half in halves]
    with T.serial(b.integer(groups)) as group:
        step = lanes.product(steps[0], lanes.floats(lanes.get(scale_levels, group)))
        offset = lanes.product(steps[1], lanes.floats(lanes.get(minimum_levels, group)))
        factor, origin = (lanes.get(fits, group, number) for number in (2, 3))
        _round_group(family, batch, quants, group, (step, offset, b.let(factor), b.let(origin)))
    for place, bits, run, shift in form.quants:
        batch.write_packed(place, quants, bits=bits, run=run, shift=shift)
    return tirx.Or(odd, odd_too)


def _fit_group(
    family: Family, form: Form, batch: Batch, fits: b.Buffer, group: b.Expr, power: b.Expr
) -> None:
    """Fit a group; ``power`` is the mean square of the block, where importance is known."""
    lanes, size = batch.lanes, family.group

    def value(element: b.Expr) -> b.Expr:
        return batch.value(group * size + element)

    weights, search = lanes.table(size), family.search
    if batch.importance is None:
        form.weigh(lanes, size, value, weights)
    else:
        search = family.weighted_search
        fill_tempered(batch, weights, group * size, power)
    weight = partial(lanes.get, weights)
    fit = fit_affine(lanes, size, value, weight, search)
    total = lanes.totals(size, lambda element: [weight(element)], [0.0])
    for number, found in enumerate([*fit, *total]):
        lanes.put(fits, found, group, number)


def _weighed(
    family: Family, lanes: Lanes, fits: b.Buffer, number: int
) -> tuple[b.Expr, b.Buffer, b.Expr]:
    """Do as ``_largest_on_top``, by a search that weighs groups by the weights of their elements.

    The limit of levels is of bytes. A block with a level beyond what the field holds, as a negative
    scale has it, is odd: the level spills into other groups', which are then read as other ones.
    """
    groups, odd = int(fits.shape[0]), lanes.variable(lanes.bits(0))
    found, levels = lanes.table(groups), lanes.table(groups, dtype="uint32")

    def value(group: b.Expr) -> b.Expr:
        return lanes.get(fits, group, number)

    def weight(group: b.Expr) -> b.Expr:
        return lanes.get(fits, group, TOTAL)

    scale = fit_positive(lanes, groups, value, weight, family.top, found)
    limit = lanes.bits(family.limits[1])
    with T.serial(groups) as group:
        level = b.let(lanes.integers(lanes.get(found, group)))
        kept = b.let(T.Select(level > limit, limit, level))
        lanes.put(levels, kept, group)
        odd.set(odd.value | _spills(family, lanes, kept))
        here = T.Select(lanes.is_finite(b.let(value(group))), lanes.bits(0), lanes.bits(1))
        odd.set(odd.value | here)
    return scale, levels, odd.value > lanes.bits(0)


def _spills(family: Family, lanes: Lanes, level: b.Expr) -> b.Expr:
    """1 where a level is more than its field holds, else 0."""
    return T.Select(level > lanes.bits(int(family.top)), lanes.bits(1), lanes.bits(0))


def _largest_on_top(
    family: Family, lanes: Lanes, fits: b.Buffer, number: int
) -> tuple[b.Expr, b.Buffer, b.Expr]:
    """The scale of scales by which the largest becomes the top level, the levels, and what is odd.

    Number 0 of a fit is the scale, 1 the minimum.
    """
    groups, top = fits.shape[0], lanes.number(family.top)
    most, odd = lanes.variable(0), lanes.variable(lanes.bits(0))
    with T.serial(groups) as group:
        scale = b.let(lanes.get(fits, group, number))
        most.set(scale, scale > most.value)
        here = T.Select(lanes.is_finite(scale), lanes.bits(0), lanes.bits(1))
        odd.set(odd.value | here)
    largest = b.let(most.value)
    factor = b.let(T.Select(largest > lanes.number(0), b.let(top / largest), lanes.number(0)))
    levels = lanes.table(groups, dtype="uint32")
    limit = lanes.bits(family.limits[0])
    with T.serial(groups) as group:
        whole = lanes.nearest(lanes.product(lanes.get(fits, group, number), factor))
        level = b.let(lanes.integers(whole) & lanes.bits(255))
        kept = b.let(T.Select(level > limit, limit, level))
        lanes.put(levels, kept, group)
        odd.set(odd.value | _spills(family, lanes, kept))
    return b.let(largest / top), levels, odd.value > lanes.bits(0)


def _round_group(
    family: Family,
    batch: Batch,
    quants: b.Buffer,
    group: b.Expr,
    stored: tuple[b.Expr, b.Expr, b.Expr, b.Expr],
) -> None:
    """Levels by the scale and minimum that are stored; where the scale is zero, as found."""
    lanes, (step, offset, factor, origin) = batch.lanes, stored
    is_zero = lanes.magnitude(step) <= lanes.number(0)
    with T.serial(b.integer(family.group)) as element:
        value = b.let(batch.value(group * family.group + element))
        exact = b.let((value + offset) / step)
        found = lanes.product(value - origin, factor)
        level = lanes.rounded(b.let(tirx.Select(is_zero, found, exact)), 0, family.search.top)
        lanes.put(quants, lanes.integers(level), group * family.group + element)


def _magnitudes(
    lanes: Lanes, size: int, value: Callable[[b.Expr], b.Expr], weights: b.Buffer
) -> None:
    with T.serial(b.integer(size)) as element:
        lanes.put(weights, lanes.magnitude(value(element)), element)


def _raised_magnitudes(
    lanes: Lanes, size: int, value: Callable[[b.Expr], b.Expr], weights: b.Buffer
) -> None:
    """Magnitudes, each more by the root of the group's mean square."""
    (squares,) = lanes.totals(size, lambda e: [lanes.product(value(e), value(e))], [0.0])
    root = b.let(T.sqrt(b.let(squares / lanes.number(size))))
    with T.serial(b.integer(size)) as element:
        lanes.put(weights, root + lanes.magnitude(value(element)), element)


def _write_four_bits(batch: Batch, place: int, scales: b.Buffer, minima: b.Buffer) -> None:
    """A byte for each group: the scale's level in the low bits, the minimum's in the high."""
    both, lanes = batch.lanes.table(ELEMENTS // 16, dtype="uint32"), batch.lanes
    with T.serial(scales.shape[0]) as group:
        joined = lanes.get(scales, group) | (lanes.get(minima, group) << lanes.bits(4))
        lanes.put(both, joined & lanes.bits(255), group)
    batch.write_packed(place, both, bits=8, run=ELEMENTS // 16)


def _write_six_bits(batch: Batch, place: int, scales: b.Buffer, minima: b.Buffer) -> None:
    """The 12 bytes of Q4_K and Q5_K: what ``kquants_affine`` reads as six bits each."""
    lanes = batch.lanes

    def word(bytes_: Callable[[int], b.Expr]) -> b.Expr:
        total = bytes_(0)
        for number in range(1, 4):
            total = total | (bytes_(number) << lanes.bits(8 * number))
        return b.let(total)

    def first(levels: b.Buffer, number: int) -> b.Expr:
        high = lanes.get(levels, 4 + number) >> lanes.bits(4)
        return lanes.get(levels, number) | (high << lanes.bits(6))

    def last(number: int) -> b.Expr:
        low = lanes.get(scales, 4 + number) & lanes.bits(15)
        return low | ((lanes.get(minima, 4 + number) & lanes.bits(15)) << lanes.bits(4))

    words = [word(partial(first, levels)) for levels in (scales, minima)]
    batch.write_words(place, [*words, word(last)])


FORMS = {
    QuantizationEncoding.Q2_K: Form(_magnitudes, 0, _write_four_bits, 80, [(16, 2, 32, 0)]),
    QuantizationEncoding.Q4_K: Form(_raised_magnitudes, 4, _write_six_bits, 0, [(16, 4, 32, 0)]),
    QuantizationEncoding.Q5_K: Form(
        _raised_magnitudes, 4, _write_six_bits, 0, [(16, 1, 32, 4), (48, 4, 32, 0)]
    ),
}
QUANTIZERS: dict[QuantizationEncoding, Quantize] = {
    encoding: partial(_quantize, encoding) for encoding in FORMS
}
