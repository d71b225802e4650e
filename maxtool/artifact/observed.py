"""Outputs of a check, observed: a part of their elements, for pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.runtime.loader.comparison import Comparison, compare
from maxtool.runtime.loader.recorded_checks import RecordedCheck

# Elements that are kept of an output: evenly spaced ones, and those that are furthest off.
SPACED, FURTHEST = 2000, 40
# Rows of which the error is kept: tokens, or texts.
MOST_ROWS = 2048

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ObservedOutput:
    """An output beside what was expected.

    Attributes:
        name: What the check is called.
        comparison: How far they lie apart, and what is allowed.
        expected: Some of the elements that were expected, ``[n]``.
        actual: The same elements of the output.
        furthest: How many of these, the last ones, are the furthest off.
        rows: The relative error of each row along the last axis, in order; NaN where the
            expected row is all zeros.
    """

    name: str
    comparison: Comparison
    expected: Floats
    actual: Floats
    furthest: int
    rows: Floats


Observe: TypeAlias = Callable[[ObservedOutput], None]


def observing(trial: RecordedCheck, observe: Observe) -> Callable[[NDArray[Any]], None]:
    """Return what tells ``observe`` of an output; one of another shape has nothing to show."""

    def told(actual: NDArray[Any]) -> None:
        if actual.shape == trial.expected.shape and actual.size:
            observe(_observed(trial, actual))

    return told


def _observed(trial: RecordedCheck, actual: NDArray[Any]) -> ObservedOutput:
    ours, theirs = (np.atleast_1d(one).astype(np.float64) for one in (actual, trial.expected))
    far = np.nan_to_num(np.abs(ours - theirs).reshape(-1), nan=0.0)
    spaced = np.unique(np.linspace(0, ours.size - 1, min(SPACED, ours.size)).astype(np.intp))
    count = min(FURTHEST, ours.size)
    furthest = np.sort(np.argpartition(far, ours.size - count)[ours.size - count :])
    chosen = np.concatenate([spaced, furthest])
    return ObservedOutput(
        trial.name,
        compare(actual, trial.expected, trial.tolerance),
        theirs.reshape(-1)[chosen],
        ours.reshape(-1)[chosen],
        count,
        _rows(ours, theirs)[:MOST_ROWS],
    )


def _rows(actual: Floats, expected: Floats) -> Floats:
    """The relative error of each row."""
    width = expected.shape[-1]
    ours, theirs = actual.reshape(-1, width), expected.reshape(-1, width)
    with np.errstate(all="ignore"):
        error = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    return np.asarray(error, np.float64)
