"""Winograd's convolutions of 3 x 3 windows: fewer products, of transformed images and filters.

A tile of ``m x m`` outputs is ``(m + 2) x (m + 2)`` products for each pair of channels instead of
``9 m x m``. Its row of ``m`` outputs is a product of polynomials, known by its values at ``m + 1``
points and at infinity: 0 and pairs of a number and its negative, which share most of their work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Rows and columns of the window.
TAPS = 3


@dataclass(frozen=True)
class Winograd:
    """A transform of tiles.

    Attributes:
        squares: The square of both numbers of each pair of points.
    """

    squares: tuple[float, ...]

    @property
    def outputs(self) -> int:
        """Rows of a tile's outputs."""
        return 2 * len(self.squares)

    @property
    def inputs(self) -> int:
        """Rows of a tile's inputs, and of its products."""
        return self.outputs + TAPS - 1

    @property
    def products(self) -> int:
        """Products of a tile for a channel and a feature."""
        return self.inputs**2

    @cached_property
    def whole(self) -> tuple[float, ...]:
        """The polynomial whose roots are all pairs, in powers of x**2, lowest first."""
        return _of_roots(self.squares)

    def without(self, square: float) -> tuple[float, ...]:
        """The same without a pair."""
        return _of_roots(tuple(other for other in self.squares if other != square))

    @cached_property
    def of_filters(self) -> Array:
        """The matrix that rows of a window are multiplied with: [inputs, TAPS]."""
        rows = [[1 / self.whole[0], 0, 0]]
        for square in self.squares:
            rest = sum(factor * square**i for i, factor in enumerate(self.without(square)))
            powers = np.sqrt(square) ** np.arange(TAPS) / (2 * square * rest)
            rows += [list(powers), list(powers * (-1.0) ** np.arange(TAPS))]
        return np.array([*rows, [0, 0, 1]])


def _of_roots(squares: tuple[float, ...]) -> tuple[float, ...]:
    factors = [1.0]
    for square in squares:
        factors = [
            low - square * high for low, high in zip([0.0, *factors], [*factors, 0.0], strict=True)
        ]
    return tuple(factors)


# By the rows of a tile's outputs.
WINOGRAD = {2: Winograd((1.0,)), 4: Winograd((0.5, 2.0))}
