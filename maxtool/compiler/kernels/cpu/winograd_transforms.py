"""Transforms of rows and columns of tiles in Winograd's convolutions, on vectors of channels."""

from __future__ import annotations

from math import sqrt

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.winograd import Winograd


def of_inputs(winograd: Winograd, values: list[b.Expr], lanes: int) -> list[b.Expr]:
    """Transform a row or column of a tile's inputs: the values at 0, at the pairs, at infinity."""
    even, odd = values[::2], values[1::2]
    result = [_sum(winograd.whole, even, lanes)]
    for square in winograd.squares:
        factors = winograd.without(square)
        first = _sum(factors, even[1:], lanes)
        second = b.let(_times(sqrt(square), _sum(factors, odd, lanes), lanes))
        result += [b.let(first + second), b.let(first - second)]
    return [*result, _sum(winograd.whole, odd, lanes)]


def of_products(winograd: Winograd, values: list[b.Expr], lanes: int) -> list[b.Expr]:
    """Transform a row or column of a tile's products: its outputs."""
    first, *pairs, last = values
    sums = [
        (b.let(plus + minus), b.let(plus - minus))
        for plus, minus in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    result = []
    for power in range(winograd.outputs):
        factors = [sqrt(square) ** power for square in winograd.squares]
        total = _sum(factors, [pair[power % 2] for pair in sums], lanes)
        if power == 0:
            total = b.let(first + total)
        if power == winograd.outputs - 1:
            total = b.let(total + last)
        result.append(total)
    return result


def _times(factor: float, value: b.Expr, lanes: int) -> b.Expr:
    return value if factor == 1 else value * b.splat(factor, lanes)


def _sum(factors: list[float] | tuple[float, ...], values: list[b.Expr], lanes: int) -> b.Expr:
    """The sum of as many values as there are factors; those of factor 1 are added first."""
    terms = sorted(zip(factors, values[: len(factors)], strict=True), key=lambda term: term[0] != 1)
    (factor, value), *others = terms
    total = _times(factor, value, lanes)
    for factor, value in others:
        total = total - value if factor == -1 else total + _times(factor, value, lanes)
    return b.let(total)
