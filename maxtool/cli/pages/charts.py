"""Charts: histograms, curves by layer, and points of two measures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from maxtool.cli.pages.markup import Markup
from maxtool.cli.pages.shapes import Lines, Point, dot, drawing, label, line, path, rect

SMALL_WIDTH, SMALL_HEIGHT = 240, 92
BASE = 14  # below the axis, for its labels
INSET = 3  # beside a curve, for its dots
LARGE_WIDTH, LARGE_HEIGHT = 720, 480
LEFT, BOTTOM, TOP, RIGHT = 56, 40, 26, 16


def number(value: float) -> str:
    """A number on an axis: three digits."""
    return f"{value:.3g}"


def histogram(counts: Sequence[int], low: float, high: float, *, name: str) -> Markup:
    """Bars of numbers of elements, on a logarithmic scale, over the values from low to high."""
    top = math.log1p(max(counts, default=0)) or 1.0
    floor, step = SMALL_HEIGHT - BASE, SMALL_WIDTH / max(len(counts), 1)
    points: list[Point] = [(0, floor)]
    for index, count in enumerate(counts):
        y = floor - (floor - 2) * math.log1p(count) / top
        points += [(index * step, y), ((index + 1) * step, y)]
    points.append((SMALL_WIDTH, floor))
    parts = [
        path(points, class_="bars", closed=True),
        *_zero(low, high, floor),
        *_ends(number(low), number(high)),
    ]
    return drawing(SMALL_WIDTH, SMALL_HEIGHT, parts, label=name)


def _zero(low: float, high: float, floor: float) -> Iterator[Markup]:
    """A mark where zero is, if it is in the range."""
    if low < 0 < high:
        x = SMALL_WIDTH * (-low / (high - low))
        yield line((x, floor), (x, floor + 4), class_="ideal")


def _ends(first: str, last: str) -> list[Markup]:
    return [
        line((0, SMALL_HEIGHT - BASE), (SMALL_WIDTH, SMALL_HEIGHT - BASE), class_="axis"),
        label(0, SMALL_HEIGHT - 3, first, class_="soft"),
        label(SMALL_WIDTH, SMALL_HEIGHT - 3, last, class_="soft", anchor="end"),
    ]


def curve(points: Sequence[Point], *, name: str, unit: str = "layer") -> Markup:
    """A curve over layers, or another ``unit``, from zero to its largest value."""
    xs = [x for x, _ in points]
    first, last = min(xs), max(xs)
    top = max((y for _, y in points), default=0.0) or 1.0
    floor, inner = SMALL_HEIGHT - BASE, SMALL_WIDTH - 2 * INSET
    scaled = [
        (INSET + inner * (x - first) / ((last - first) or 1), floor - (floor - 16) * y / top)
        for x, y in points
    ]
    parts = [
        path(scaled, class_="curve"),
        *(
            dot(x, y, class_="point", title=[f"{unit} {of:g}: {number(value)}"])
            for (x, y), (of, value) in zip(scaled, points, strict=True)
        ),
        label(0, 10, number(top), class_="soft"),
        *_ends(f"{unit} {first:g}", f"{unit} {last:g}"),
    ]
    return drawing(SMALL_WIDTH, SMALL_HEIGHT, parts, label=name)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its title, its range, and whether it is logarithmic."""

    title: str
    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """The place of a value on the axis, from 0 to 1."""
        low, high, at = (
            (map(math.log10, (self.low, self.high, value)))
            if self.log
            else (
                self.low,
                self.high,
                value,
            )
        )
        return min(max((at - low) / ((high - low) or 1), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            steps = (1, 2, 5) if last - first < 2 else (1,)
            powers = range(first - 1, last + 1)
            marks = [step * 10.0**power for power in powers for step in steps]
            return [mark for mark in marks if self.low <= mark <= self.high]
        step = 10 ** math.floor(math.log10((self.high - self.low) or 1))
        step = next(s for s in (step / 5, step / 2, step, 2 * step) if self._count(s) <= 8)
        first = math.ceil(self.low / step)
        return [step * index for index in range(first, first + self._count(step) + 1)]

    def _count(self, step: float) -> int:
        return math.floor(self.high / step) - math.ceil(self.low / step)


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a chart, with its tooltip; one that stands out is named beside it."""

    x: float
    y: float
    title: Lines = ()
    name: str = ""
    class_: str = "point"


def scatter(
    marks: Sequence[Mark],
    x: Axis,
    y: Axis,
    *,
    ideal: tuple[float, float] | None = None,
    height: float = LARGE_HEIGHT,
    name: str,
) -> Markup:
    """Points in a frame, with the line where they should be, by its slope and its height at 0."""
    whole, width, height = height, LARGE_WIDTH - LEFT - RIGHT, height - TOP - BOTTOM

    def at(first: float, second: float) -> Point:
        return LEFT + width * x.share(first), TOP + height * (1 - y.share(second))

    parts = [*_frame(x, y, width, height)]
    if ideal is not None:
        slope, base = ideal
        first, last = (at(value, slope * value + base) for value in (x.low, x.high))
        parts.append(line(first, last, class_="ideal"))
    for mark in marks:
        left, top = at(mark.x, mark.y)
        radius = 5 if mark.name else 2
        parts.append(dot(left, top, radius=radius, class_=mark.class_, title=mark.title))
        if mark.name:
            right = left > LARGE_WIDTH / 2
            anchor = "end" if right else None
            parts.append(label(left + (-9 if right else 9), top + 4, mark.name, anchor=anchor))
    return drawing(LARGE_WIDTH, whole, parts, label=name)


def _frame(x: Axis, y: Axis, width: float, height: float) -> Iterator[Markup]:
    """The frame of a chart, ticks with their numbers, and titles of both axes."""
    floor = TOP + height
    for value in x.ticks():
        at = LEFT + width * x.share(value)
        yield line((at, TOP), (at, floor), class_="axis")
        yield label(at, floor + 14, number(value), class_="soft", anchor="middle")
    for value in y.ticks():
        at = TOP + height * (1 - y.share(value))
        yield line((LEFT, at), (LEFT + width, at), class_="axis")
        yield label(LEFT - 6, at + 4, number(value), class_="soft", anchor="end")
    yield rect(LEFT, TOP, width, height, class_="frame")
    yield label(LEFT + width / 2, floor + BOTTOM - 6, x.title, anchor="middle")
    yield label(0, 14, y.title)
