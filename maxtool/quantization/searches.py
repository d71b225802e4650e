"""Searches for the scale of a group of elements, candidate after candidate, as ggml does them.

Each is a function of ggml-quants.c, whose order of float32 operations it keeps, for all groups at
once. Arrays are ``[elements, groups]``, what is found ``[groups]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.block import Float32, Int8, UInt8
from maxtool.quantization.primitives import (
    NEGLIGIBLE,
    ONE,
    ZERO,
    extremes,
    first_largest,
    from_first,
    integers,
    largest,
    nearest,
    nearest_codes,
    rounded,
    total,
)
from maxtool.quantization.tables import look_up

Mask = NDArray[np.bool_]

# How often all levels of a group are tried in turn, unless none changes before.
ROUNDS = 5
TENTH = np.float32(0.1)


@dataclass(frozen=True, slots=True)
class AffineSearch:
    """Candidates for a scale and a minimum.

    Attributes:
        top: The highest level; the lowest is 0.
        first: How many levels more than ``top`` a group's range has for the first candidate.
        step: How many more it has for each of the next.
        steps: How many candidates follow the first.
        absolute: Whether errors are counted by their magnitudes, not their squares.
    """

    top: int
    first: float
    step: float
    steps: int
    absolute: bool = False

    def ranges(self) -> Iterator[np.float32]:
        """Yield the levels that the range of a group has, for each candidate."""
        for number in range(self.steps + 1):
            extra = np.float32(self.first) + np.float32(self.step) * np.float32(number)
            yield extra + np.float32(self.top)


@dataclass(frozen=True, slots=True)
class AffineFit:
    """``scale * level + least``, where a level is ``round(factor * (value - origin))``."""

    scale: Float32
    least: Float32
    factor: Float32
    origin: Float32

    def levels(self, values: Float32, search: AffineSearch) -> Float32:
        """Return the levels of values, as whole numbers."""
        return _levels(values, self.factor, self.origin, search)

    def error(
        self, values: Float32, weights: Float32, levels: Float32, search: AffineSearch
    ) -> Float32:
        """Return the weighted sum of errors, or of their squares."""
        errors = self.scale * levels
        errors += self.least
        errors -= values
        np.abs(errors, out=errors) if search.absolute else np.square(errors, out=errors)
        errors *= weights
        return total(errors)

    def take(self, other: AffineFit, where: Mask) -> None:
        """Take the numbers of some groups from another fit."""
        for name in self.__slots__:
            np.copyto(getattr(self, name), getattr(other, name), where=where)


def fit_affine(values: Float32, weights: Float32, search: AffineSearch) -> AffineFit:
    """``make_qkx2_quants`` and ``make_qkx3_quants``: a scale, and a minimum of at most zero."""
    least, most = extremes(values)
    least[least > 0] = 0
    flat = most <= least
    sums = from_first(weights), from_first(weights * values)
    factor = np.float32(search.top) / (most - least)
    best = AffineFit(ONE / factor, least, factor, least.copy())
    error = best.error(values, weights, best.levels(values, search), search)
    for levels_of_range in search.ranges():
        # A range begins at the last minimum that was better than those before it.
        factor, origin = levels_of_range / (most - best.least), best.least.copy()
        levels = _levels(values, factor, origin, search)
        scale, least, solvable = _least_squares(values, weights, levels, *sums)
        candidate = AffineFit(scale, least, factor, origin)
        now = candidate.error(values, weights, levels, search)
        better = solvable & (now < error)
        best.take(candidate, better)
        np.copyto(error, now, where=better)
    best.scale[flat] = best.factor[flat] = 0
    return best


def _levels(values: Float32, factor: Float32, origin: Float32, search: AffineSearch) -> Float32:
    quants = values - origin
    quants *= factor
    return rounded(quants, 0, search.top)


def _least_squares(
    values: Float32, weights: Float32, levels: Float32, weight: Float32, value: Float32
) -> tuple[Float32, Float32, Mask]:
    """The scale and minimum of least error for these levels, and where there are such.

    ``weight`` and ``value`` are the sums of weights, and of values by their weights.
    """
    terms = weights * levels
    level, product = total(terms), total(terms * values)
    terms *= levels
    square = total(terms)
    determinant = weight * square - level * level
    scale, least = weight * product, square * value
    scale -= value * level
    least -= level * product
    scale /= determinant
    least /= determinant
    above = least > 0
    np.copyto(scale, product / square, where=above)
    least[above] = 0
    return scale, least, determinant > 0


@dataclass(frozen=True, slots=True)
class SymmetricFit:
    """``scale * level``, where a level is ``round(factor * value)``; none in ``empty`` groups."""

    scale: Float32
    factor: Float32
    empty: Mask

    def levels(self, values: Float32, zero: int) -> Float32:
        """Return the levels of values, plus ``zero``, as whole numbers; 0 in empty groups."""
        quants = rounded(values * self.factor, -zero, zero - 1)
        quants += np.float32(zero)
        quants[:, self.empty] = 0
        return quants


def fit_symmetric(values: Float32, weights: Float32, zero: int) -> SymmetricFit:
    """``make_qx_quants``: a scale for the levels from ``-zero`` to ``zero - 1``."""
    extreme = first_largest(values)
    empty = np.abs(extreme) < NEGLIGIBLE
    weighted = weights * values
    scale, best = np.zeros((2, values.shape[1]), np.float32)
    factor = np.float32(-zero) / extreme
    for number in (0, *_nonzero(9)):
        tried = -(np.float32(zero) + TENTH * np.float32(number)) / extreme
        levels = rounded(values * tried, -zero, zero - 1)
        product, square = _products(weighted, weights, levels)
        better = (square > 0) & (product * product > best * square) if number else square != 0
        np.copyto(scale, product / square, where=better)
        np.copyto(best, scale * product, where=better)
        np.copyto(factor, tried, where=better)
    scale[empty] = 0
    return SymmetricFit(scale, factor, empty)


def _nonzero(count: int) -> list[int]:
    """Numbers from ``-count`` to ``count``, but for 0."""
    return [number for number in range(-count, count + 1) if number]


def _products(weighted: Float32, weights: Float32, levels: Float32) -> tuple[Float32, Float32]:
    """The sums of weighted values times levels, and of weights times squared levels."""
    squares = weights * levels
    squares *= levels
    return total(weighted * levels), total(squares)


def fit_uneven(elements: Float32, weights: Float32, values: Int8) -> Float32:
    """The search of ``quantize_row_iq4_nl_impl``: scales for ascending ``values``."""
    extreme = first_largest(elements)
    empty = np.abs(extreme) < NEGLIGIBLE
    lowest, known = np.float32(values[0]), values.astype(np.float32)
    scale, best = np.zeros((2, elements.shape[1]), np.float32)
    for number in (None, *range(-7, 8)):
        # The first factor is rounded in another way than the others, and taken as it is.
        tried = lowest + np.float32(number or 0)
        factor = tried / extreme if number is not None else ONE / (-extreme / lowest)
        levels = look_up(known, nearest_codes(elements * factor, values))
        terms = weights * levels
        product, square = total(terms * elements), total(terms * levels)
        better = square > 0
        if number is not None:
            better &= product * product > best * square
        np.copyto(scale, product / square, where=better)
        np.copyto(best, scale * product, where=better)
    scale[empty] = 0
    return scale


def fit_cubic(values: Float32, zero: int) -> tuple[Float32, Float32]:
    """``make_q3_quants``: scales, and levels plus ``zero``; weights are the values' squares."""
    extreme = first_largest(values)
    empty = np.abs(extreme) < NEGLIGIBLE
    weights = values * values
    levels = rounded(values * (np.float32(-zero) / extreme), -zero, zero - 1)
    state = _Levels.of(values, weights, levels)
    state.refine(-zero, zero - 1, positive_rest=False)
    scale = state.scale()
    levels += np.float32(zero)
    scale[empty] = levels[:, empty] = 0
    return scale, levels


def fit_positive(values: Float32, weights: Float32, top: int) -> tuple[Float32, UInt8]:
    """``make_qp_quants``: scales of scales, ``[groups]``, and levels from 0 to ``top``."""
    most = largest(values)
    empty = most < NEGLIGIBLE
    factor = np.float32(top) / most
    # The first levels are bytes that are not clamped.
    levels = _bytes(nearest(values * factor))
    error = _squared_error(values, weights, levels, ONE / factor)
    for number in _nonzero(4):
        tried = (TENTH * np.float32(number) + np.float32(top)) / most
        levels = np.minimum(nearest(values * tried), np.float32(top))
        now = _squared_error(values, weights, levels, ONE / tried)
        better = now < error
        np.copyto(error, now, where=better)
        np.copyto(factor, tried, where=better)
    levels = np.minimum(nearest(values * factor), np.float32(top))
    state = _Levels.of(values, weights, levels)
    np.copyto(levels, _bytes(levels))
    state.refine(-(1 << 22), top, positive_rest=True)
    scale = state.scale()
    scale[empty] = levels[:, empty] = 0
    return scale, integers(levels, np.uint8)


def _bytes(levels: Float32) -> Float32:
    """Whole numbers as unsigned bytes hold them."""
    return integers(levels, np.uint8).astype(np.float32)


def _squared_error(values: Float32, weights: Float32, levels: Float32, scale: Float32) -> Float32:
    errors = values - scale * levels
    terms = weights * errors
    terms *= errors
    return total(terms)


@dataclass(slots=True)
class _Levels:
    """Levels that are changed one by one, with the sums that their scale follows from."""

    values: Float32
    weights: Float32
    weighted: Float32
    levels: Float32
    product: Float32
    square: Float32

    @classmethod
    def of(cls, values: Float32, weights: Float32, levels: Float32) -> _Levels:
        weighted = weights * values
        sums = _products(weighted, weights, levels)
        return cls(values, weights, weighted, levels, *sums)

    def scale(self) -> Float32:
        """The scale of least squared error."""
        return np.where(self.square > 0, self.product / self.square, ZERO)

    def refine(self, lowest: int, highest: int, *, positive_rest: bool) -> None:
        """Move single levels as long as the error decreases.

        Where no level of a group moves, none will in the next round.
        """
        for _ in range(ROUNDS):
            moved = [
                self._move(index, lowest, highest, positive_rest=positive_rest)
                for index in range(len(self.levels))
            ]
            if not any(moved):
                return

    def _move(self, index: int, lowest: int, highest: int, *, positive_rest: bool) -> bool:
        """Move the level of one element in the groups where another one is better."""
        level, weight, weighted = self.levels[index], self.weights[index], self.weighted[index]
        product = self.product - weighted * level
        square = self.square - weight * level * level
        where = product > 0
        if positive_rest:
            where &= square > 0
        new = rounded(self.values[index] * square / product, lowest, highest)
        where &= new != level
        product += weighted * new
        square += weight * new * new
        where &= square > 0
        where &= product * product * self.square > self.product * self.product * square
        np.copyto(level, _bytes(new) if positive_rest else new, where=where)
        np.copyto(self.product, product, where=where)
        np.copyto(self.square, square, where=where)
        return bool(where.any())
