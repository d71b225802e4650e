"""Searches for the scale of a group of elements, as ``quantization/searches.py`` has them.

A group's elements and weights are functions of an element's number; each lane is a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantizers.lanes import SIGN, Lanes, Variable, fenced
from maxtool.quantization.block import Int8
from maxtool.quantization.primitives import NEGLIGIBLE
from maxtool.quantization.searches import ROUNDS, TENTH, AffineSearch

Elements = Callable[[b.Expr], b.Expr]

# Candidates on either side of the first one, in a search for a scale alone.
NEIGHBOURS = 9
# The same in a search for a scale of scales, and in one for the scale of uneven values.
POSITIVE_NEIGHBOURS, UNEVEN_NEIGHBOURS = 4, 7
# No level is below it, as ggml's rounding wraps around there.
LOWEST_POSITIVE = -(1 << 22)


def fit_affine(
    lanes: Lanes, size: int, value: Elements, weight: Elements, search: AffineSearch
) -> tuple[b.Expr, b.Expr, b.Expr, b.Expr]:
    """A group's scale, negated minimum, factor and origin: ``searches.fit_affine``."""
    smallest, most = lanes.extremes(size, value)
    smallest = b.let(T.Select(smallest > lanes.number(0), lanes.number(0), smallest))
    flat = most <= smallest
    weights, values = lanes.totals(
        size, lambda e: [weight(e), lanes.product(weight(e), value(e))], [-0.0, -0.0]
    )
    group = _AffineGroup(lanes, size, value, weight, search)
    first = b.let(lanes.number(search.top) / b.let(most - smallest))
    start = lanes.number(1) / first
    best = [lanes.variable(number) for number in (start, smallest, first, smallest)]
    error = lanes.variable(group.error(*(each.value for each in best)))
    with T.serial(b.integer(search.steps + 1)) as number:
        factor = b.let(_range(lanes, search, number) / b.let(most - best[1].value))
        origin = b.let(best[1].value)
        scale, least, solvable = group.least_squares(factor, origin, weights, values)
        now = group.error(scale, least, factor, origin)
        better = b.let(lanes.flags(tirx.And(solvable, now < error.value)))
        for variable, new in zip(best, (scale, least, factor, origin), strict=True):
            variable.set(new, better > lanes.bits(0))
        error.set(now, better > lanes.bits(0))
    zero = lanes.number(0)
    scale, factor = (b.let(T.Select(flat, zero, best[number].value)) for number in (0, 2))
    negated = lanes.as_floats(lanes.as_bits(best[1].value) ^ lanes.bits(0x8000_0000))
    return scale, b.let(negated), factor, b.let(best[3].value)


def _range(lanes: Lanes, search: AffineSearch, number: b.Expr) -> b.Expr:
    """The levels that the range of a group has for a candidate: ``AffineSearch.ranges``."""
    step = fenced(T.float32(float(np.float32(search.step))) * T.Cast("float32", number))
    extra = b.let(T.float32(float(np.float32(search.first))) + step)
    return lanes.broadcast(extra + T.float32(float(search.top)))


class _AffineGroup:
    """The sums over a group's elements that a search needs."""

    def __init__(
        self, lanes: Lanes, size: int, value: Elements, weight: Elements, search: AffineSearch
    ) -> None:
        self._lanes, self._size, self._search = lanes, size, search
        self._value, self._weight = value, weight

    def _level(self, element: b.Expr, factor: b.Expr, origin: b.Expr) -> b.Expr:
        lanes = self._lanes
        scaled = lanes.product(b.let(self._value(element) - origin), factor)
        return lanes.rounded(scaled, 0, self._search.top)

    def error(self, scale: b.Expr, least: b.Expr, factor: b.Expr, origin: b.Expr) -> b.Expr:
        """The weighted sum of errors, or of their squares: ``AffineFit.error``."""
        lanes = self._lanes

        def term(element: b.Expr) -> list[b.Expr]:
            level = self._level(element, factor, origin)
            off = b.let(lanes.product(scale, level) + least)
            off = b.let(off - self._value(element))
            size = lanes.magnitude(off) if self._search.absolute else lanes.product(off, off)
            return [lanes.product(size, self._weight(element))]

        return lanes.totals(self._size, term, [0.0])[0]

    def least_squares(
        self, factor: b.Expr, origin: b.Expr, weight: b.Expr, value: b.Expr
    ) -> tuple[b.Expr, b.Expr, b.Expr]:
        """The scale and minimum of least error for the levels, and where there are such."""
        lanes = self._lanes

        def terms(element: b.Expr) -> list[b.Expr]:
            level = self._level(element, factor, origin)
            weighted = lanes.product(self._weight(element), level)
            return [
                weighted,
                lanes.product(weighted, self._value(element)),
                lanes.product(weighted, level),
            ]

        level, product, square = lanes.totals(self._size, terms, [0.0, 0.0, 0.0])
        both = lanes.product
        determinant = b.let(both(weight, square) - both(level, level))
        scale = b.let(b.let(both(weight, product) - both(value, level)) / determinant)
        least = b.let(b.let(both(square, value) - both(level, product)) / determinant)
        above = least > lanes.number(0)
        scale = b.let(tirx.Select(above, b.let(product / square), scale))
        return (
            scale,
            b.let(tirx.Select(above, lanes.number(0), least)),
            determinant > lanes.number(0),
        )


def fit_symmetric(
    lanes: Lanes, size: int, value: Elements, weight: Elements, zero: int
) -> tuple[b.Expr, b.Expr]:
    """A group's scale and factor: ``searches.fit_symmetric``; both 0 in empty groups."""
    extreme = lanes.first_largest(size, value)
    empty = lanes.magnitude(extreme) < lanes.number(NEGLIGIBLE)
    scale, best = lanes.variable(0), lanes.variable(0)
    factor = lanes.variable(lanes.number(-zero) / extreme)

    def attempt(tried: b.Expr, better: Callable[[b.Expr, b.Expr], b.Expr]) -> None:
        def terms(element: b.Expr) -> list[b.Expr]:
            here = value(element)
            level = lanes.rounded(lanes.product(here, tried), -zero, zero - 1)
            weighted = lanes.product(weight(element), here)
            square = lanes.product(weight(element), level, level)
            return [lanes.product(weighted, level), square]

        product, square = lanes.totals(size, terms, [0.0, 0.0])
        where = b.let(lanes.flags(better(product, square))) > lanes.bits(0)
        scale.set(b.let(product / square), where)
        best.set(lanes.product(scale.value, product), where)
        factor.set(tried, where)

    def is_better(product: b.Expr, square: b.Expr) -> b.Expr:
        more = lanes.product(product, product) > lanes.product(best.value, square)
        return tirx.And(square > lanes.number(0), more)

    attempt(b.let(factor.value), lambda _, square: lanes.is_nonzero(square))
    with T.serial(2 * NEIGHBOURS) as step:
        tenths = fenced(T.float32(float(TENTH)) * _around_zero(step, NEIGHBOURS))
        attempt(b.let(lanes.broadcast(-(T.float32(zero) + tenths)) / extreme), is_better)
    nothing = lanes.number(0)
    return (
        b.let(tirx.Select(empty, nothing, scale.value)),
        b.let(tirx.Select(empty, nothing, factor.value)),
    )


def fit_uneven(lanes: Lanes, size: int, value: Elements, weight: Elements, values: Int8) -> b.Expr:
    """A group's scale for ascending ``values``: ``searches.fit_uneven``."""
    extreme = lanes.first_largest(size, value)
    empty = lanes.magnitude(extreme) < lanes.number(NEGLIGIBLE)
    lowest = float(values[0])
    scale, best = lanes.variable(0), lanes.variable(0)

    def attempt(factor: b.Expr, better: Callable[[b.Expr, b.Expr], b.Expr]) -> None:
        def terms(element: b.Expr) -> list[b.Expr]:
            here = value(element)
            level = nearest_value(lanes, lanes.product(here, factor), values)
            weighted = lanes.product(weight(element), level)
            return [lanes.product(weighted, here), lanes.product(weighted, level)]

        product, square = lanes.totals(size, terms, [0.0, 0.0])
        where = b.let(lanes.flags(better(product, square))) > lanes.bits(0)
        scale.set(b.let(product / square), where)
        best.set(lanes.product(scale.value, product), where)

    def is_better(product: b.Expr, square: b.Expr) -> b.Expr:
        more = lanes.product(product, product) > lanes.product(best.value, square)
        return tirx.And(square > lanes.number(0), more)

    negated = lanes.as_floats(lanes.as_bits(extreme) ^ lanes.bits(SIGN))
    first = b.let(lanes.number(1) / b.let(b.let(negated) / lanes.number(lowest)))
    attempt(first, lambda _, square: square > lanes.number(0))
    with T.serial(2 * UNEVEN_NEIGHBOURS + 1) as step:
        number = T.Cast("float32", step) + T.float32(lowest - UNEVEN_NEIGHBOURS)
        attempt(b.let(lanes.broadcast(b.let(number)) / extreme), is_better)
    return b.let(tirx.Select(empty, lanes.number(0), scale.value))


def nearest_value(lanes: Lanes, scaled: b.Expr, values: Int8) -> b.Expr:
    """The value nearest to each number, as float32: ``primitives.nearest_codes``."""
    gaps = np.diff(values.astype(np.int32)).tolist()
    return _less_by(lanes, scaled, values, float(values[-1]), gaps)


def nearest_code(lanes: Lanes, scaled: b.Expr, values: Int8) -> b.Expr:
    """The index of the value nearest to each number, as uint32: ``primitives.nearest_codes``."""
    last = len(values) - 1
    return lanes.integers(_less_by(lanes, scaled, values, float(last), [1] * last))


def _less_by(
    lanes: Lanes, scaled: b.Expr, values: Int8, last: float, steps: Sequence[int]
) -> b.Expr:
    """The number of the last value, less the step below each middle that a number is below."""
    doubled, known = b.let(scaled + scaled), values.astype(np.int32)
    result = lanes.number(last)
    for middle, step in zip((known[:-1] + known[1:]).tolist(), steps, strict=True):
        below = tirx.Select(doubled < lanes.number(middle), lanes.number(step), lanes.number(0))
        result = b.let(result - below)
    return result


def fit_positive(
    lanes: Lanes, size: int, value: Elements, weight: Elements, top: int, levels: b.Buffer
) -> b.Expr:
    """The scale of scales, and their ``levels`` from 0 to ``top``: ``searches.fit_positive``."""
    largest, limit = lanes.variable(0), lanes.number(top)
    with T.serial(b.integer(size)) as element:
        here = b.let(value(element))
        largest.set(here, here > largest.value)
    most = b.let(largest.value)
    factor = lanes.variable(b.let(limit / most))

    def whole(element: b.Expr, tried: b.Expr) -> b.Expr:
        return lanes.nearest(lanes.product(value(element), tried))

    def limited(element: b.Expr, tried: b.Expr) -> b.Expr:
        level = whole(element, tried)
        return b.let(tirx.Select(level > limit, limit, level))

    def error_of(scale: b.Expr, level: Callable[[b.Expr], b.Expr]) -> b.Expr:
        def terms(element: b.Expr) -> list[b.Expr]:
            off = b.let(value(element) - lanes.product(scale, level(element)))
            return [lanes.product(weight(element), off, off)]

        return lanes.totals(size, terms, [0.0])[0]

    first = b.let(factor.value)
    error = lanes.variable(
        error_of(b.let(lanes.number(1) / first), lambda e: _as_byte(lanes, whole(e, first)))
    )
    with T.serial(2 * POSITIVE_NEIGHBOURS) as step:
        number = _around_zero(step, POSITIVE_NEIGHBOURS)
        aim = fenced(T.float32(float(TENTH)) * number) + T.float32(float(top))
        tried = b.let(lanes.broadcast(b.let(aim)) / most)
        now = error_of(b.let(lanes.number(1) / tried), lambda e: limited(e, tried))
        better = b.let(lanes.flags(now < error.value)) > lanes.bits(0)
        error.set(now, better)
        factor.set(tried, better)
    found = b.let(factor.value)

    def terms(element: b.Expr) -> list[b.Expr]:
        level = limited(element, found)
        lanes.put(levels, _as_byte(lanes, level), element)
        weighted = lanes.product(weight(element), value(element))
        return [lanes.product(weighted, level), lanes.product(weight(element), level, level)]

    sums = tuple(map(lanes.variable, lanes.totals(size, terms, [0.0, 0.0])))
    with T.serial(ROUNDS), T.serial(b.integer(size)) as element:
        here = b.let(weight(element))
        weights = (here, lanes.product(here, value(element)))
        bounds = (LOWEST_POSITIVE, top)
        _move(lanes, value(element), weights, sums, (levels, element), bounds, positive=True)
    kept = b.let(lanes.flags(most < lanes.number(NEGLIGIBLE))) <= lanes.bits(0)
    with T.serial(b.integer(size)) as element:
        level = lanes.get(levels, element)
        lanes.put(levels, tirx.Select(kept, level, lanes.number(0)), element)
    return b.let(tirx.Select(kept, _scale_of(lanes, sums), lanes.number(0)))


def _as_byte(lanes: Lanes, whole: b.Expr) -> b.Expr:
    """Whole numbers as unsigned bytes hold them."""
    return lanes.floats(b.let(lanes.integers(whole) & lanes.bits(255)))


def _around_zero(step: b.Expr, neighbours: int) -> b.Expr:
    """Numbers from ``-neighbours`` to ``neighbours``, but for 0."""
    number = T.Cast("float32", step) - T.float32(neighbours)
    return b.let(number + T.Select(step < neighbours, T.float32(0), T.float32(1)))


def _scale_of(lanes: Lanes, sums: tuple[Variable, ...]) -> b.Expr:
    """The scale of least squared error."""
    product, square = (b.let(total.value) for total in sums)
    scale = b.let(product / square)
    return b.let(tirx.Select(square > lanes.number(0), scale, lanes.number(0)))


def fit_cubic(lanes: Lanes, size: int, value: Elements, zero: int, levels: b.Buffer) -> b.Expr:
    """A group's scale, and its ``levels`` plus ``zero``: ``searches.fit_cubic``."""
    extreme = lanes.first_largest(size, value)
    empty = lanes.magnitude(extreme) < lanes.number(NEGLIGIBLE)
    factor = b.let(lanes.number(-zero) / extreme)

    def weighted(element: b.Expr) -> tuple[b.Expr, b.Expr]:
        weight = lanes.product(value(element), value(element))
        return weight, lanes.product(weight, value(element))

    def terms(element: b.Expr) -> list[b.Expr]:
        level = lanes.rounded(lanes.product(value(element), factor), -zero, zero - 1)
        lanes.put(levels, level, element)
        weight, product = weighted(element)
        return [lanes.product(product, level), lanes.product(weight, level, level)]

    sums = tuple(map(lanes.variable, lanes.totals(size, terms, [0.0, 0.0])))
    with T.serial(ROUNDS), T.serial(b.integer(size)) as element:
        bounds = (-zero, zero - 1)
        _move(lanes, value(element), weighted(element), sums, (levels, element), bounds)
    with T.serial(b.integer(size)) as element:
        level = lanes.get(levels, element) + lanes.number(zero)
        lanes.put(levels, tirx.Select(empty, lanes.number(0), b.let(level)), element)
    return b.let(tirx.Select(empty, lanes.number(0), _scale_of(lanes, sums)))


def _move(
    lanes: Lanes,
    value: b.Expr,
    weights: tuple[b.Expr, b.Expr],
    sums: tuple[Variable, ...],
    at: tuple[b.Buffer, b.Expr],
    bounds: tuple[int, int],
    *,
    positive: bool = False,
) -> None:
    """Move the level of one element in the lanes where another one is better.

    With ``positive`` levels, which are bytes, what is left of the squares must be so too.
    """
    (weight, weighted), nothing = weights, lanes.number(0)
    level = b.let(lanes.get(*at))
    before, square_before = (b.let(total.value) for total in sums)
    product = b.let(before - lanes.product(weighted, level))
    square = b.let(square_before - lanes.product(weight, level, level))
    where = lanes.flags(product > nothing)
    if positive:
        where = b.let(where & lanes.flags(square > nothing))
    new = lanes.rounded(b.let(lanes.product(value, square) / product), *bounds)
    where = b.let(where & lanes.flags(lanes.is_nonzero(b.let(new - level))))
    product = b.let(product + lanes.product(weighted, new))
    square = b.let(square + lanes.product(weight, new, new))
    where = b.let(where & lanes.flags(square > nothing))
    now = lanes.product(product, product, square_before)
    where = b.let(where & lanes.flags(now > lanes.product(before, before, square)))
    chosen = where > lanes.bits(0)
    stored = _as_byte(lanes, new) if positive else new
    lanes.put(at[0], tirx.Select(chosen, stored, level), at[1])
    for total, sum_ in zip(sums, (product, square), strict=True):
        total.set(sum_, chosen)
