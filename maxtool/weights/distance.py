"""Distance of two tensors of one shape, in one pass, in parts of bounded size.

Sums are of each part in float64, pairwise, and parts are added in their order: a tensor's size
costs no accuracy, and the number of threads changes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.weights.weight_elements import Elements, in_rounds, widened


@dataclass(frozen=True, slots=True)
class Distance:
    """Distance of the elements of two tensors, or of several pairs of tensors together.

    NaN equals NaN here, an infinity one of its sign, and zeros of either sign are equal. The
    difference of a number and what is not one is infinite.

    Attributes:
        elements: How many each has.
        differing: How many differ.
        largest: The largest absolute difference.
        at: The number of the element where that is first; ``None`` if nothing differs.
        squares: Sum of the squared differences.
        first: Sum of the squares of the first's elements, of those that are finite in both.
        second: The same of the second.
        products: Sum of the products of these.
    """

    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    at: int | None = None
    squares: Any = 0.0
    first: Any = 0.0
    second: Any = 0.0
    products: Any = 0.0

    @property
    def rmse(self) -> float:
        """Root of the mean squared difference; of no elements it is 0."""
        return float(np.sqrt(self.squares / self.elements)) if self.elements else 0.0

    @property
    def relative(self) -> float:
        """The RMSE divided by the root mean square of the first; infinite where that alone is 0."""
        if not self.first:
            return math.inf if self.squares else 0.0
        return float(np.sqrt(self.squares / self.first))

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between the two as vectors; ``None`` where either is all zeros."""
        lengths = np.sqrt(self.first) * np.sqrt(self.second)
        if not lengths or not np.isfinite(lengths):
            return None
        return float(np.clip(self.products / lengths, -1, 1)) if self.differing else 1.0

    def __add__(self, other: Distance) -> Distance:
        further = self.at is None or other.largest > self.largest
        far = other if other.at is not None and further else self
        return Distance(
            self.elements + other.elements,
            self.differing + other.differing,
            far.largest,
            far.at,
            self.squares + other.squares,
            self.first + other.first,
            self.second + other.second,
            self.products + other.products,
        )


def apart(
    left: Elements, right: Elements, progress: Callable[[int], None] | None = None
) -> Distance:
    """Measure the distance of two tensors of one shape, which may be far larger than memory.

    ``progress`` is told the bytes of the first done since the last call.
    """

    def work(part: slice) -> tuple[int, Distance]:
        with np.errstate(all="ignore"):
            return part.start, _of_part(left[part], right[part], part.start)

    total = Distance()
    for results in in_rounds(left, work, progress):
        parts = sorted(results, key=itemgetter(0))
        total = reduce(Distance.__add__, (distance for _, distance in parts), total)
    return total


def _of_part(left: NDArray[Any], right: NDArray[Any], start: int) -> Distance:
    """Measure the distance of arrays that are small enough to be widened."""
    ours, theirs = _comparable(left), _comparable(right)
    differ = ours != theirs
    if ours.dtype.kind == "f" and theirs.dtype.kind == "f":
        differ &= ~(np.isnan(ours) & np.isnan(theirs))
    ours, theirs = widened(ours), widened(theirs)
    far = np.abs(ours - theirs)
    far[~differ] = 0
    far[np.isnan(far)] = np.inf
    where = int(far.argmax())
    first, second, products = _products(ours, theirs)
    count = int(np.count_nonzero(differ))
    at = start + where if count else None
    largest, squares = float(far[where]), np.square(far, out=far).sum()
    return Distance(ours.size, count, largest, at, squares, first, second, products)


def _products(left: NDArray[Any], right: NDArray[Any]) -> tuple[Any, Any, Any]:
    """Sums of squares of each and of their products, of the elements that are finite in both."""
    products = left * right
    if not np.isfinite(products).all():
        usable = np.isfinite(left) & np.isfinite(right)
        left, right, products = left[usable], right[usable], products[usable]
    return np.square(left).sum(), np.square(right).sum(), products.sum()


def _comparable(values: NDArray[Any]) -> NDArray[Any]:
    """Values of a type that NumPy itself can compare; integers stay, since floats round them."""
    if values.dtype == np.bool_:
        return values.view(np.uint8)
    return values if values.dtype.kind in "iuf" else values.astype(np.float32)
