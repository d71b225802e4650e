"""Searches for the scale of a group of elements, as ``quantization/searches.py`` has them.

A group's elements and weights are functions of an element's number; each lane is a group.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantizers.lanes import Lanes, Variable, fenced
from maxtool.quantization.primitives import NEGLIGIBLE
from maxtool.quantization.searches import ROUNDS, TENTH, AffineSearch

Elements = Callable[[b.Expr], b.Expr]

# Candidates on either side of the first one, in a search for a scale alone.
NEIGHBOURS = 9


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
        number = T.Cast("float32", step) - T.float32(NEIGHBOURS)
        number = b.let(number + T.Select(step < NEIGHBOURS, T.float32(0), T.float32(1)))
        tenths = fenced(T.float32(float(TENTH)) * number)
        attempt(b.let(lanes.broadcast(-(T.float32(zero) + tenths)) / extreme), is_better)
    nothing = lanes.number(0)
    return (
        b.let(tirx.Select(empty, nothing, scale.value)),
        b.let(tirx.Select(empty, nothing, factor.value)),
    )


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
        _move(lanes, value(element), weighted(element), sums, (levels, element), zero)
    with T.serial(b.integer(size)) as element:
        level = lanes.get(levels, element) + lanes.number(zero)
        lanes.put(levels, tirx.Select(empty, lanes.number(0), b.let(level)), element)
    product, square = (b.let(total.value) for total in sums)
    scale = b.let(tirx.Select(square > lanes.number(0), b.let(product / square), lanes.number(0)))
    return b.let(tirx.Select(empty, lanes.number(0), scale))


def _move(
    lanes: Lanes,
    value: b.Expr,
    weights: tuple[b.Expr, b.Expr],
    sums: tuple[Variable, ...],
    at: tuple[b.Buffer, b.Expr],
    zero: int,
) -> None:
    """Move the level of one element in the lanes where another one is better."""
    (weight, weighted), nothing = weights, lanes.number(0)
    level = b.let(lanes.get(*at))
    before, square_before = (b.let(total.value) for total in sums)
    product = b.let(before - lanes.product(weighted, level))
    square = b.let(square_before - lanes.product(weight, level, level))
    where = lanes.flags(product > nothing)
    new = lanes.rounded(b.let(lanes.product(value, square) / product), -zero, zero - 1)
    where = b.let(where & lanes.flags(lanes.is_nonzero(b.let(new - level))))
    product = b.let(product + lanes.product(weighted, new))
    square = b.let(square + lanes.product(weight, new, new))
    where = b.let(where & lanes.flags(square > nothing))
    now = lanes.product(product, product, square_before)
    where = b.let(where & lanes.flags(now > lanes.product(before, before, square)))
    chosen = where > lanes.bits(0)
    lanes.put(at[0], tirx.Select(chosen, new, level), at[1])
    for total, sum_ in zip(sums, (product, square), strict=True):
        total.set(sum_, chosen)
