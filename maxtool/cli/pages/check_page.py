"""The page of ``compile --check``: outputs of the compiled model beside those of its reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from maxtool.cli import units
from maxtool.cli.pages.charts import Axis, Mark, curve, number, scatter
from maxtool.cli.pages.markup import Markup
from maxtool.cli.pages.page import document, figure, figures, section

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maxtool.artifact.observed import Floats, ObservedOutput
    from maxtool.runtime.loader.comparison import Comparison

# Beyond the least and the largest value, as a share of the range.
MARGIN = 0.04
# What is larger, or not a number, is not drawn, and no axis is shorter.
LARGEST, LEAST = 1e100, 1e-100
# The height of a picture of differences.
SHORT = 260


def page(name: str, outputs: Sequence[ObservedOutput]) -> str:
    """The page of an artifact."""
    passed = sum(output.comparison.passed for output in outputs)
    fact = f"{passed} of {units.plural(len(outputs), 'output')} as close as is allowed"
    return document(f"Check of {name}", [fact], [_output(output) for output in outputs])


def _output(output: ObservedOutput) -> Markup:
    what = f"{_verdict(output.comparison)} Each dot is an element: across what was expected, up "
    what += "what the compiled model gave, and below the difference of the two. The "
    what += f"{output.furthest} elements that are furthest off have the other colour."
    return section(output.name, what, *_parity(output), figures(_by_row(output)))


def _verdict(comparison: Comparison) -> str:
    verdict = "Passed" if comparison.passed else "Failed"
    return f"{verdict}: {comparison}; {units.plural(comparison.size, 'element')}."


def _parity(output: ObservedOutput) -> Iterator[Markup]:
    """Yield what was given, and how far that is off, over what was expected."""
    both = np.stack([output.expected, output.actual])
    usable = (np.abs(both) < LARGEST).all(axis=0)
    if not usable.any():
        return
    far = (np.arange(usable.size) >= usable.size - output.furthest)[usable]
    expected, actual = both[:, usable]
    across = _axis("expected", both[:, usable])
    up = replace(across, title="compiled model")
    marks = _marks(expected, actual, far, "expected {}, got {}")
    yield scatter(marks, across, up, ideal=(1, 0), name=f"parity of {output.name}")
    apart = actual - expected
    marks = _marks(expected, apart, far, "expected {}, off by {}")
    up = _axis("difference", np.concatenate([apart, -apart]))
    yield scatter(marks, across, up, ideal=(0, 0), height=SHORT, name=f"errors of {output.name}")


def _axis(title: str, values: Floats) -> Axis:
    """An axis with some room at both ends."""
    low, high = float(values.min()), float(values.max())
    room = MARGIN * (high - low) if high - low > LEAST else 1.0
    return Axis(title, low - room, high + room)


def _marks(x: Floats, y: Floats, far: NDArray[np.bool_], title: str) -> list[Mark]:
    return [
        Mark(left, up, [title.format(number(left), number(up))], class_="far" if off else "point")
        for left, up, off in zip(x.tolist(), y.tolist(), far.tolist(), strict=True)
    ]


def _by_row(output: ObservedOutput) -> Iterator[Markup]:
    """Yield a curve of the relative errors of rows, where there are some."""
    points = [(i, x) for i, x in enumerate(output.rows.tolist()) if np.isfinite(x)]
    if len(points) > 1:
        caption = "relative error of each row, in order"
        yield figure("Rows", caption, curve(points, name="errors by row", unit="row"))
