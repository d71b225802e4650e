"""Draw docs/rooms.svg, the picture in architecture.md: which room of maxtool imports which.

python docs/rooms.py

A room is a package or a module right below ``maxtool/``. It stands one floor above the highest room
that it imports, and a line leads down to each room it imports, except where a longer way down leads
there too (the transitive reduction).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "maxtool"
PICTURE = ROOT / "docs" / "rooms.svg"

LEFT_OUT = ("__init__", "__main__")
WIDTH, BOX, LANE, HEIGHT, STEP, MARGIN = 860, 172, 12, 44, 84, 16
SWEEPS = 8
STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
  .parts { font-size: 10px; fill: #59636e }
  rect { fill: #f6f8fa; stroke: #59636e }
  path { fill: none; stroke: #8c959f; stroke-width: 1.2 }
"""


def draw() -> str:
    """Return the picture as SVG; the same imports give the same bytes."""
    floors, lines = stops(reduced(imports()))
    middle = positions(floors, lines)
    parts = [
        *(line(middle[upper], middle[lower]) for upper in lines for lower in lines[upper]),
        *(passage(*middle[stop]) for stop in middle if ">" in stop),
        *(part for room in middle if ">" not in room for part in box(room, *middle[room])),
    ]
    height = 2 * MARGIN + HEIGHT + STEP * (len(floors) - 1)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
    ground = f'<rect width="{WIDTH}" height="{height}" style="fill: #fff; stroke: none"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", ground, *parts, "</svg>", ""])


def imports() -> dict[str, set[str]]:
    """Return the rooms that each room imports, the packages in which they lie left out."""
    rooms = {entry.stem for entry in PACKAGE.iterdir() if has_code(entry)} - set(LEFT_OUT)
    return {
        room: {name for file in files_of(room) for name in imported(file)} & rooms - {room}
        for room in sorted(rooms)
    }


def has_code(entry: Path) -> bool:
    """Return whether an entry of the package is a module, or a folder of some."""
    return entry.suffix == ".py" or any(entry.glob("*.py"))


def files_of(room: str) -> list[Path]:
    """Return the modules of a room, in order."""
    module = PACKAGE / f"{room}.py"
    return [module] if module.is_file() else sorted((PACKAGE / room).rglob("*.py"))


def imported(file: Path) -> Iterator[str]:
    """Yield the rooms named by a file's imports, those for types and inside functions included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "maxtool":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield room_of(node.module or "")
        elif isinstance(node, ast.Import):
            yield from (room_of(alias.name) for alias in node.names)


def room_of(module: str) -> str:
    """Return the room of a module by its dotted name, or nothing if it is not maxtool's."""
    package, _, inside = module.partition(".")
    return inside.split(".")[0] if package == "maxtool" else ""


def reduced(below: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the transitive reduction of an acyclic relation."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return frozenset(below[room].union(*(reached(lower) for lower in below[room])))

    return {
        room: {lower for lower in lowers if not any(lower in reached(other) for other in lowers)}
        for room, lowers in below.items()
    }


def heights(below: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room, from 0 on the ground."""

    @cache
    def height(room: str) -> int:
        return 1 + max((height(lower) for lower in below[room]), default=-1)

    return {room: height(room) for room in below}


def stops(below: Mapping[str, set[str]]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Return what stands on each floor, from the ground up, and what each leads down to.

    A line that passes a floor has a stop there, ``upper>lower``, so that it runs between boxes.
    """
    height = heights(below)
    floors: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    lines: dict[str, list[str]] = {}
    for room in below:
        floors[height[room]].append(room)
        for lower in sorted(below[room]):
            upper = room
            for floor in range(height[room] - 1, height[lower], -1):
                stop = f"{room}>{lower}>{floor}"
                floors[floor].append(stop)
                lines.setdefault(upper, []).append(stop)
                upper = stop
            lines.setdefault(upper, []).append(lower)
    return floors, lines


def positions(
    floors: list[list[str]], lines: Mapping[str, list[str]]
) -> dict[str, tuple[float, float]]:
    """Return the middle of each stop, ordered so that few lines cross.

    Each floor in turn, up and down, is sorted by the mean position of its neighbours on the one
    before (Sugiyama, Tagawa and Toda, 1981).
    """
    above = {stop: [upper for upper in lines if stop in lines[upper]] for stop in chain(*floors)}
    across = {stop: x for floor in floors for stop, x in spread(floor)}
    for sweep in range(SWEEPS):
        neighbours = lines if sweep % 2 else above
        for floor in floors if sweep % 2 else reversed(floors):
            floor.sort(
                key=lambda stop: mean(
                    [across[n] for n in neighbours.get(stop, [])] or [across[stop]]
                )
            )
            across.update(spread(floor))
    top = MARGIN + HEIGHT / 2
    return {
        stop: (across[stop], top + STEP * (len(floors) - 1 - level))
        for level, floor in enumerate(floors)
        for stop in floor
    }


def spread(floor: list[str]) -> Iterator[tuple[str, float]]:
    """Yield where each stop of a floor stands: boxes take more of its width than lines do."""
    widths = [LANE if ">" in stop else BOX for stop in floor]
    gap = (WIDTH - sum(widths)) / len(floor)
    left = 0.0
    for stop, width in zip(floor, widths, strict=True):
        yield stop, left + (gap + width) / 2
        left += gap + width


def line(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    """Return a line from the foot of one stop to the head of one on the floor below."""
    (x, y), (to_x, to_y) = upper, lower
    start, end = y + HEIGHT / 2, to_y - HEIGHT / 2
    bend = (start + end) / 2
    return f'<path d="M{x:.1f} {start:g}C{x:.1f} {bend:g} {to_x:.1f} {bend:g} {to_x:.1f} {end:g}"/>'


def passage(x: float, y: float) -> str:
    """Return the part of a line that passes a floor."""
    return f'<path d="M{x:.1f} {y - HEIGHT / 2:g}V{y + HEIGHT / 2:g}"/>'


def box(room: str, x: float, y: float) -> Iterator[str]:
    """Yield a room's box, with its name and the folders inside it."""
    folders = sorted(entry.name for entry in (PACKAGE / room).glob("*/") if has_code(entry))
    yield (
        f'<rect x="{x - BOX / 2:g}" y="{y - HEIGHT / 2:g}" width="{BOX}" height="{HEIGHT}" rx="6"/>'
    )
    yield f'<text x="{x:g}" y="{y if folders else y + 5:g}">{room}</text>'
    if folders:
        yield f'<text class="parts" x="{x:g}" y="{y + 15:g}">{" · ".join(folders)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
