"""Shapes of SVG, and the frame that they are drawn in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from maxtool.cli.pages.markup import Markup, element, text
from maxtool.cli.text import elided

# Of a character of the small text, on an average: units of the drawing.
CHARACTER = 6.3
Point = tuple[float, float]
# The lines of a tooltip.
Lines = Sequence[str]


def drawing(width: float, height: float, parts: Iterable[Markup], *, label: str) -> Markup:
    """A picture at its own size or less; narrow frames scroll it, so that text stays large."""
    content = element(
        "svg",
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        style=f"min-width: {min(width, 720):g}px; max-width: {width:g}px",
    )
    return element("div", content, class_="drawing")


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    class_: str | None = None,
    fill: str | None = None,
    title: Lines = (),
) -> Markup:
    """A rectangle, with a tooltip."""
    style = None if fill is None else f"fill: {fill}"
    return element(
        "rect", *_tooltip(title), x=x, y=y, width=width, height=height, class_=class_, style=style
    )


def _tooltip(lines: Lines) -> list[Markup]:
    return [element("title", Markup("\n".join(map(text, lines))))] if lines else []


def label(
    x: float, y: float, content: str, *, class_: str | None = None, anchor: str | None = None
) -> Markup:
    """A line of text; ``anchor`` is ``middle`` or ``end``, otherwise it begins at ``x``."""
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def fitted(
    x: float, y: float, room: float, content: str, *, class_: str | None = None
) -> list[Markup]:
    """A line of text, elided to a width; nothing where not even a few characters have room."""
    most = int(room / CHARACTER)
    return [label(x, y, elided(content, most), class_=class_)] if most >= 3 else []


def line(start: Point, end: Point, *, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=class_)


def dot(x: float, y: float, *, radius: float = 2.0, class_: str, title: Lines = ()) -> Markup:
    """A dot, with a tooltip."""
    return element("circle", *_tooltip(title), cx=x, cy=y, r=radius, class_=class_)


def path(points: Sequence[Point], *, class_: str, closed: bool = False) -> Markup:
    """A line through points."""
    moves = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return element("path", d=f"M{moves}{' Z' if closed else ''}", class_=class_)
