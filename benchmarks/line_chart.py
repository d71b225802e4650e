"""Line charts as SVG: panels side by side, a line for each name, both axes from what is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log2
from typing import TypeAlias

PANEL, HEIGHT, LEFT, TOP, BOTTOM = 480, 340, 64, 56, 64
TICKS = 5
COLOURS = ("#4c78a8", "#e45756", "#54a24b", "#b279a2", "#f58518")
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .tick { fill: #59636e }
  .left { text-anchor: end }
  .below { text-anchor: middle }
  .grid { stroke: #d0d7de }
  polyline { fill: none; stroke-width: 2 }
"""

# Points (x, y), from left to right.
Line: TypeAlias = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One chart; x is drawn by its logarithm, y from zero."""

    title: str
    x: str  # what lies along the axis
    lines: Mapping[str, Line]

    @property
    def top(self) -> float:
        """The end of the axis of y: a round number above all points."""
        highest = max((y for line in self.lines.values() for _, y in line), default=0) or 1
        step = 10 ** (len(str(int(highest))) - 1)
        return -(-highest // step) * step

    @property
    def columns(self) -> list[float]:
        """Each x that has a point."""
        return sorted({x for line in self.lines.values() for x, _ in line})


def draw(panels: Sequence[Panel], facts: str) -> str:
    """Return a picture of some panels, with a line of facts below them."""
    width, height = PANEL * len(panels), HEIGHT + 24
    parts = [part for number, panel in enumerate(panels) for part in _panel(panel, number * PANEL)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
    ground = f'<rect width="{width}" height="{height}" style="fill: #fff"/>'
    below = _text(LEFT, height - 10, "tick", facts)
    return "\n".join([head, f"<style>{STYLE}</style>", ground, *parts, below, "</svg>", ""])


def _panel(panel: Panel, left: float) -> Iterator[str]:
    """Yield a title, two axes, and each line with its name."""
    right, floor = left + PANEL - 16, HEIGHT - BOTTOM
    start, columns = left + LEFT, panel.columns
    span = log2(columns[-1] / columns[0]) or 1
    yield _text(start, 20, "title", panel.title)
    yield _text((start + right) / 2, HEIGHT - 24, "below", panel.x)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (right - start) * log2(x / columns[0]) / span
        return start + across, floor - (floor - TOP) * y / panel.top

    for tick in range(TICKS + 1):
        value = panel.top * tick / TICKS
        y = at(columns[0], value)[1]
        yield f'<path class="grid" d="M{start:.1f} {y:.1f}H{right:.1f}"/>'
        yield _text(start - 6, y + 4, "tick left", f"{value:g}")
    for x in columns:
        yield _text(at(x, 0)[0], floor + 18, "tick below", f"{x:g}")
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        yield f'<polyline points="{points}" style="stroke: {colour}"/>'
        key = start + 100 * number
        yield f'<rect x="{key}" y="34" width="10" height="10" style="fill: {colour}"/>'
        yield _text(key + 14, 43, "name", name)


def _text(x: float, y: float, style: str, text: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
