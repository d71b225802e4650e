"""The error that products with rounded activations may make: derived, since no constant fits.

Kernels of quantized weights round activations to eight bits, by a scale for each block of 32 or
256, those of pairs of bfloat16 round them to bfloat16. What that does to an output depends on the
model: on how much larger than its neighbours the largest activation of a block is, and on how
errors grow from layer to layer. So it is measured, without a compiler: the graph is evaluated in
float64 twice, exactly and with the same rounding
(:mod:`maxtool.parity.activation_rounding`). The difference is one sample of the error that a kernel
makes which does as it should. The artifact's is another: sums in float32 fall on the other side of
a rounding threshold here and there, and from then on errors are independent, but as large.

The ratio of the root mean squares of two independent samples of ``n`` errors of one distribution
is the root of a variable of the distribution F(n, n). It is above :data:`FACTOR` with probability
5e-8 where n is 64, and 2e-14 where it is 128; outputs have more errors than that. So an artifact
may be that many times as far from the exact result as the evaluation that rounds, beside what its
other types are allowed. Each measure of size has a bound of its own: the largest error, which one
outlier decides, would allow the root mean square too much.

Where rounding sends a token to other experts, one row is far off and decides the error of all. No
sample says much of another one then. As an output of zeros is as far from the exact one as that is
large, less than that is allowed in any case: :data:`MOST`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from maxtool.artifact.contents import Contents
from maxtool.artifact.graph_outputs import GraphRunner
from maxtool.parity.thresholds import uncertain_thresholds
from maxtool.runtime.loader.comparison import Tolerance, sizes
from maxtool.runtime.loader.memory import Array
from maxtool.runtime.loader.recorded_checks import RecordedCheck

FACTOR = 2.0
MOST = 0.7
STEPS = (np.int8, np.uint8)
"""Types of outputs that a model rounds floats to."""


def with_rounding(contents: Contents, trials: Iterable[RecordedCheck]) -> list[RecordedCheck]:
    """Comparisons with what the graphs give that allow what the rounding of activations changes."""
    runner = GraphRunner(contents, rounds=True)
    return [_allowing(trial, trial.run(runner)) for trial in trials]


def with_steps(contents: Contents, trials: Iterable[RecordedCheck]) -> list[RecordedCheck]:
    """Comparisons that allow what comes of numbers on the other side of thresholds.

    Graphs of quantized models round to whole numbers. A sample of what float32 makes of that is the
    evaluation that moves numbers before they are rounded, further than float32 does
    (:mod:`maxtool.parity.thresholds`); it is compared with the one that does not.
    """
    runner = GraphRunner(contents)
    each = []
    for trial in trials:
        exact = trial.run(runner)
        with uncertain_thresholds():
            moved = trial.run(runner)
        each.append(_allowing(trial, moved, exact))
    return each


def _allowing(trial: RecordedCheck, rounding: Array, exact: Array | None = None) -> RecordedCheck:
    """A comparison that allows the error of an output ``rounding`` beside what it does already."""
    exact = trial.expected if exact is None else exact
    are_steps = exact.dtype in STEPS
    if not (are_steps or exact.dtype.kind == "f") or not exact.size:
        return trial
    wide, other = exact.astype("f8"), rounding.astype("f8")
    are_finite = np.isfinite(wide) & np.isfinite(other)
    wide, other = (np.where(are_finite, each, 0.0) for each in (wide, other))
    made = [
        share + min(MOST, FACTOR * off / size) if size else share
        for share, off, size in zip(
            trial.tolerance.shares, sizes(other - wide), sizes(wide), strict=True
        )
    ]
    tolerance = Tolerance(made[0], trial.tolerance.atol, made[1], are_steps=are_steps)
    return replace(trial, tolerance=tolerance)
