"""Heat maps: a measure of each role in each layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from maxtool.cli.pages.markup import Markup, element, joined
from maxtool.cli.pages.shapes import CHARACTER, Lines, drawing, fitted, label, rect

ROW, GAP, HEAD = 22, 1.5, 20
MOST_LABEL = 320
WIDTH = 1080
WIDEST = 40
STEPS = 24
# Measures that are about equal get about the same colour: the range is at least that wide.
LEAST_RANGE = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its measure, or the class of what has none, and its tooltip."""

    title: Lines
    value: float | None = None
    class_: str | None = None


# By role, and the number of a layer; None for what is in no layer.
Cells = Mapping[tuple[str, int | None], Cell]


def heatmap(cells: Cells, *, name: str) -> Markup:
    """Draw a row for each role, a column for each layer."""
    roles = list(dict.fromkeys(role for role, _ in cells))
    layers = sorted({layer for _, layer in cells if layer is not None})
    columns: list[int | None] = [*([None] if any(at is None for _, at in cells) else []), *layers]
    wide = min(max(map(len, roles), default=0) * CHARACTER + 12, MOST_LABEL)
    step = min((WIDTH - wide) / max(len(columns), 1), WIDEST)
    parts = [*_numbers(columns, wide, step)]
    for row, role in enumerate(roles):
        top = HEAD + row * ROW
        parts += fitted(0, top + 15, wide - 8, role)
        for column, layer in enumerate(columns):
            if (cell := cells.get((role, layer))) is not None:
                parts.append(_cell(cell, wide + column * step, top, step, scale(cells)))
    width = max(wide + step * len(columns), 360)
    return drawing(width, HEAD + ROW * len(roles), parts, label=name)


def _numbers(columns: Sequence[int | None], left: float, step: float) -> Iterator[Markup]:
    """The numbers of layers above their columns, as many as have room."""
    every = max(1, math.ceil(3.5 * CHARACTER / step))
    for index, layer in enumerate(columns):
        if layer is None:
            yield label(left + (index + 0.5) * step, 13, "-", class_="soft", anchor="middle")
        elif layer % every == 0:
            x = left + (index + 0.5) * step
            yield label(x, 13, str(layer), class_="soft", anchor="middle")


def _cell(cell: Cell, x: float, y: float, step: float, ends: tuple[float, float]) -> Markup:
    fill, class_ = None, cell.class_
    if class_ is None:
        fill = color(cell.value, ends)
        class_ = "none" if fill is None else None
    width = max(step - GAP, 0.5)
    return rect(x, y, width, ROW - GAP, class_=class_, fill=fill, title=cell.title)


def scale(cells: Cells) -> tuple[float, float]:
    """The range of the colours: of the measures that are finite and not zero, or more than that."""
    values = [cell.value for cell in cells.values() if cell.value]
    finite = [value for value in values if math.isfinite(value)]
    most = max(finite, default=0.0)
    return min([*finite, most / LEAST_RANGE]), most


def color(value: float | None, ends: tuple[float, float]) -> str | None:
    """The colour of a measure, on a logarithmic scale; None for zero."""
    if not value:
        return None
    if not math.isfinite(value):
        return "var(--second)"
    return shade(_share(value, ends))


def ink(value: float | None, ends: tuple[float, float]) -> str | None:
    """The class of text on the colour of a measure; None for that of all other text."""
    return "high" if value and (not math.isfinite(value) or _share(value, ends) > 0.45) else None


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return math.log(value / low) / math.log(high / low)


def shade(share: float) -> str:
    """The colour of a share from 0 to 1, in one of a few steps."""
    percent = round(round(share * STEPS) / STEPS * 90 + 10)
    return f"color-mix(in oklab, var(--hot) {percent}%, var(--cold))"


def ramp(low: str, high: str, zero: str) -> Markup:
    """A legend of the colours from the least to the largest measure, and of zero."""
    width = 220
    steps = [
        rect(width * i / STEPS, 0, width / STEPS + 0.5, 12, fill=shade((i + 0.5) / STEPS))
        for i in range(STEPS)
    ]
    bar = element("svg", *steps, viewBox=f"0 0 {width} 12", style=f"width: {width}px; height: 12px")
    square = element("svg", element("rect", width=12, height=12, rx=2, class_="none"))
    return element(
        "ul",
        element("li", square, zero),
        element("li", joined(f"{low} ", bar, f" {high}")),
        class_="legend",
    )
