"""Statistics of a weight's elements, in one pass, in parts of bounded size.

Means and squared deviations are of each part in float64 and are then combined, as in T. F. Chan,
G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979). So a tensor's size costs no accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.parallel import in_parts
from maxtool.weights.weight_elements import PART, FlatElements, Weight, widened

# Parts between two calls of the progress function.
ROUND = 32


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the elements of a weight.

    Attributes:
        count: How many there are.
        zeros: How many are zero, of either sign.
        nans: How many are not a number.
        infinities: How many are infinite, of either sign.
        minimum: The least finite element, exactly; ``None`` if there is none.
        maximum: The largest.
        mean: Of the finite elements.
        deviations: Sum of the squared differences of finite elements from their mean.
    """

    count: int = 0
    zeros: int = 0
    nans: int = 0
    infinities: int = 0
    minimum: float | int | None = None
    maximum: float | int | None = None
    mean: Any = 0.0
    deviations: Any = 0.0

    @property
    def finite(self) -> int:
        """Number of elements that are finite."""
        return self.count - self.nans - self.infinities

    @property
    def std(self) -> float | None:
        """Standard deviation of the finite elements, as a population."""
        return float(np.sqrt(self.deviations / self.finite)) if self.finite else None

    def __add__(self, other: Stats) -> Stats:
        if not self.finite or not other.finite:
            mean, deviations = (other if other.finite else self)._moments
        else:
            both = self.finite + other.finite
            step = other.mean - self.mean
            mean = self.mean + step * (other.finite / both)
            spread = step * step * (self.finite * (other.finite / both))
            deviations = self.deviations + other.deviations + spread
        return Stats(
            self.count + other.count,
            self.zeros + other.zeros,
            self.nans + other.nans,
            self.infinities + other.infinities,
            _among(min, self.minimum, other.minimum),
            _among(max, self.maximum, other.maximum),
            mean,
            deviations,
        )

    @property
    def _moments(self) -> tuple[Any, Any]:
        return self.mean, self.deviations

    def as_dict(self) -> dict[str, float | int | None]:
        """Return all fields as plain numbers; mean and deviation of nothing are ``None``."""
        return {
            "count": self.count,
            "min": self.minimum,
            "max": self.maximum,
            "mean": float(self.mean) if self.finite else None,
            "std": self.std,
            "zeros": self.zeros,
            "nan": self.nans,
            "inf": self.infinities,
        }


def measure(weight: Weight, progress: Callable[[int], None] | None = None) -> Stats:
    """Statistics of all elements of a weight; quantized ones are decoded part by part.

    Args:
        weight: The weight; one that stays in its file may be far larger than memory.
        progress: Told the bytes of the payload done since the last call.
    """
    elements = FlatElements(weight)
    total, done = Stats(), 0
    for start in range(0, elements.size, ROUND * PART):
        count = min(ROUND * PART, elements.size - start)
        parts = in_parts(count, PART, lambda part, at=start: _part(elements, part, at))  # type: ignore[misc]
        total = reduce(Stats.__add__, (stats for _, stats in sorted(parts, key=_start)), total)
        share = math.ceil(elements.nbytes * (start + count) / elements.size)
        if progress is not None:
            progress(share - done)
        done = share
    return total


def _part(elements: FlatElements, part: slice, at: int) -> tuple[int, Stats]:
    with np.errstate(all="ignore"):
        return part.start, measure_array(elements[slice(at + part.start, at + part.stop)])


def _start(part: tuple[int, Stats]) -> int:
    return part[0]


def measure_array(values: NDArray[Any]) -> Stats:
    """Statistics of an array that is small enough to be widened."""
    values = values.view(np.uint8) if values.dtype == np.bool_ else values
    work = widened(values)
    usable = np.isfinite(work)
    nans = infinities = 0
    if not usable.all():
        nans = int(np.count_nonzero(np.isnan(work)))
        infinities = values.size - int(np.count_nonzero(usable)) - nans
        values, work = values[usable], work[usable]
    count = values.size + nans + infinities
    if not values.size:
        return Stats(count, nans=nans, infinities=infinities)
    least, most = _ends(values if values.dtype.kind in "iu" else work)
    zeros = values.size - int(np.count_nonzero(work))
    mean = work.mean()
    work -= mean
    return Stats(count, zeros, nans, infinities, least, most, mean, np.square(work, out=work).sum())


def _ends(values: NDArray[Any]) -> tuple[float | int, float | int]:
    """Return least and largest as plain numbers; integers as stored, since float64 rounds."""
    plain = int if values.dtype.kind in "iu" else float
    return plain(values.min()), plain(values.max())


def _among(choose: Callable[..., Any], left: Any, right: Any) -> Any:  # noqa: ANN401 - numbers
    known = [value for value in (left, right) if value is not None]
    return choose(known) if known else None
