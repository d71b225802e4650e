"""Statistics of a weight's elements, in one pass, in parts of bounded size.

Means and squared deviations are of each part in float64 and are then combined, as in T. F. Chan,
G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979). So a tensor's size costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.weights.weight_elements import FlatElements, Weight, in_rounds, widened


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the elements of a weight; zeros and infinities are of either sign.

    Attributes:
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
            only = other if other.finite else self
            mean, deviations = only.mean, only.deviations
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
    """Statistics of all elements of a weight, which may be far larger than memory.

    ``progress`` is told the bytes of the payload done since the last call.
    """
    elements = FlatElements(weight)

    def work(part: slice) -> tuple[int, Stats]:
        with np.errstate(all="ignore"):
            return part.start, measure_array(elements[part])

    total = Stats()
    for results in in_rounds(elements, work, progress):
        parts = sorted(results, key=itemgetter(0))
        total = reduce(Stats.__add__, (stats for _, stats in parts), total)
    return total


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
