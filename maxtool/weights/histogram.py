"""Histogram of a weight's elements, in parts of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.weights.stats import Stats
from maxtool.weights.weight_elements import FlatElements, Weight, in_rounds, widened

BINS = 64


@dataclass(frozen=True, slots=True)
class Histogram:
    """Numbers of finite elements in intervals of equal width from ``low`` to ``high``."""

    low: float
    high: float
    counts: tuple[int, ...]


def counted(
    weight: Weight, stats: Stats, progress: Callable[[int], None] | None = None
) -> Histogram | None:
    """Count the elements of a weight, whose statistics are known; ``None`` if none is finite.

    ``progress`` is told the bytes of the payload done since the last call.
    """
    if stats.minimum is None or stats.maximum is None:
        return None
    low, high = float(stats.minimum), float(stats.maximum)
    elements = FlatElements(weight)

    def work(part: slice) -> NDArray[Any]:
        return _counts(elements[part], low, high)

    total = np.zeros(BINS, np.int64)
    for results in in_rounds(elements, work, progress):
        total += sum(results)
    return Histogram(low, high, tuple(total.tolist()))


def _counts(values: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    """Numbers of elements in each interval; the last one holds its upper end too."""
    plain = widened(values.view(np.uint8) if values.dtype == np.bool_ else values)
    finite = plain[np.isfinite(plain)].astype(np.float64)
    # Halves, since the width of the whole range may be beyond float64.
    width = high / 2 - low / 2
    with np.errstate(all="ignore"):
        share = (finite / 2 - low / 2) / width if width else np.full(finite.shape, 0.5)
    index = np.clip((share * BINS).astype(np.intp), 0, BINS - 1)
    return np.bincount(index, minlength=BINS)
