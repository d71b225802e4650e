"""Rounding to whole numbers, and what it does to results that float32 has not exactly.

Where a model rounds to whole numbers, sums in float32 fall on the other side of a threshold now and
then, and a whole step comes of it. Inside :func:`uncertain_thresholds` so they do here, more often.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from maxtool.parity.array_types import Floats

UNCERTAINTY = 2.0**-18
"""How far numbers are moved at most, relative to them: a few float32 operations move them 16 to 64
times less. So thresholds are passed that often, even where few numbers are near one."""

_random: ContextVar[np.random.Generator | None] = ContextVar("_random", default=None)


@contextmanager
def uncertain_thresholds() -> Iterator[None]:
    """Move numbers a little before they are rounded, at random but always alike."""
    token = _random.set(np.random.default_rng(0))
    try:
        yield
    finally:
        _random.reset(token)


def rounded(x: Any) -> Floats:  # noqa: ANN401 - floats or whole numbers
    """Round to whole numbers, ties to even."""
    random = _random.get()
    if random is None or x.dtype.kind != "f":
        return np.asarray(np.round(x))
    moved = x * (1 + UNCERTAINTY * random.uniform(-1, 1, x.shape))
    is_tie = x - np.floor(x) == 0.5  # float32 has it, too, and it goes the same way
    return np.asarray(np.round(np.where(is_tie, x, moved)))
