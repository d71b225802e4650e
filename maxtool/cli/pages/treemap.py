"""Treemaps: nested rectangles whose areas are sizes.

The layout is that of M. Bruls, K. Huizing, J. J. van Wijk, "Squarified treemaps" (2000): rows are
filled along the shorter side, as long as that makes their rectangles more square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from maxtool.cli.pages.markup import Markup
from maxtool.cli.pages.shapes import CHARACTER, Lines, drawing, fitted, rect
from maxtool.cli.text import ELLIPSIS

WIDTH, HEIGHT = 1080, 560
HEAD, INSET, GAP = 17, 3, 3
# A group that is smaller has no title, so that its tensors have room.
TITLED = 60
LINE = 14
# What most names end with, which tooltips alone tell.
COMMON = ".weight"


class Box(NamedTuple):
    """A rectangle of a drawing."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, top: float, inset: float) -> Box:
        """The box within a border."""
        width, height = self.width - 2 * inset, self.height - top - inset
        return Box(self.x + inset, self.y + top, max(width, 0.0), max(height, 0.0))


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle of a treemap: name, size, tooltip, its class or its colour, and that of text."""

    name: str
    size: float
    title: Lines
    class_: str | None = None
    fill: str | None = None
    facts: str = ""
    ink: str | None = "on"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Tiles that lie together under a title."""

    name: str
    tiles: tuple[Tile, ...]

    @property
    def size(self) -> float:
        """The sum of its tiles."""
        return sum(tile.size for tile in self.tiles)


def squarified(sizes: Sequence[float], box: Box) -> list[Box]:
    """Rectangles of areas in the ratio of ``sizes``, which descend, that fill a box."""
    boxes: list[Box] = []
    total, start = sum(sizes), 0
    while start < len(sizes):
        side = min(box.width, box.height)
        scale = box.width * box.height / total if total else 0.0
        stop = _row_end(sizes, start, side, scale)
        row = sizes[start:stop]
        filled, box = _row(row, sum(row), total, box)
        boxes += filled
        total, start = total - sum(row), stop
    return boxes


def _row_end(sizes: Sequence[float], start: int, side: float, scale: float) -> int:
    """The end of a row: before the rectangle that would make the worst of it less square."""
    total, stop = sizes[start], start + 1
    worst = _worst(sizes[start], sizes[start], total, side, scale)
    while stop < len(sizes):
        total += sizes[stop]
        longer = _worst(sizes[start], sizes[stop], total, side, scale)
        if longer > worst:
            break
        worst, stop = longer, stop + 1
    return stop


def _worst(largest: float, least: float, total: float, side: float, scale: float) -> float:
    """The largest ratio of sides in a row along ``side``: of its largest or its least rectangle."""
    area = total * scale
    if not area or not side or not least:
        return float("inf")
    return max(side**2 * largest * scale / area**2, area**2 / (side**2 * least * scale))


def _row(sizes: Sequence[float], row: float, total: float, box: Box) -> tuple[list[Box], Box]:
    """The rectangles of a row along the shorter side of a box, and what is left of the box."""
    share = row / total if total else 0.0
    x, y, width, height = box
    boxes, done = [], 0.0
    for size in sizes:
        part = size / row if row else 0.0
        if width >= height:
            boxes.append(Box(x, y + done * height, width * share, height * part))
        else:
            boxes.append(Box(x + done * width, y, width * part, height * share))
        done += part
    if width >= height:
        return boxes, Box(x + width * share, y, width * (1 - share), height)
    return boxes, Box(x, y + height * share, width, height * (1 - share))


def treemap(clusters: Sequence[Cluster], *, label: str) -> Markup:
    """Draw clusters, the largest first, each with its tiles."""
    shown = sorted((one for one in clusters if one.size > 0), key=lambda one: -one.size)
    boxes = squarified([one.size for one in shown], Box(0, 0, WIDTH, HEIGHT))
    parts = [part for one, box in zip(shown, boxes, strict=True) for part in _cluster(one, box)]
    return drawing(WIDTH, HEIGHT, parts, label=label)


def _cluster(cluster: Cluster, box: Box) -> Iterator[Markup]:
    tiles = sorted((tile for tile in cluster.tiles if tile.size > 0), key=lambda one: -one.size)
    box = box.inside(GAP / 2, GAP / 2)
    inner = box
    if len(tiles) > 1 and box.width > TITLED and box.height > TITLED:
        yield rect(*box, class_="group")
        yield from fitted(box.x + 6, box.y + 12.5, box.width - 10, cluster.name, class_="strong")
        inner = box.inside(HEAD, INSET)
    for tile, where in zip(tiles, squarified([one.size for one in tiles], inner), strict=True):
        yield from _tile(tile, where)


def _tile(tile: Tile, box: Box) -> Iterator[Markup]:
    yield rect(*box, class_=f"tile {tile.class_ or ''}".rstrip(), fill=tile.fill, title=tile.title)
    if box.height > LINE + 2 and box.width > 5 * CHARACTER:
        name = shortened(tile.name, int((box.width - 8) / CHARACTER))
        yield from fitted(box.x + 5, box.y + 13, box.width - 8, name, class_=tile.ink)
    if box.height > 2 * LINE + 4 and len(tile.facts) * CHARACTER < box.width - 8:
        yield from fitted(box.x + 5, box.y + 13 + LINE, box.width - 8, tile.facts, class_=tile.ink)


def shortened(name: str, most: int) -> str:
    """The last segments of a name that fit, or the beginning of the last one."""
    *others, last = name.removesuffix(COMMON).split(".")
    while others and len(".".join([*others, last])) > most:
        del others[0]
    whole = ".".join([*others, last])
    return whole if len(whole) <= most else f"{whole[: max(most - 1, 0)]}{ELLIPSIS}"
