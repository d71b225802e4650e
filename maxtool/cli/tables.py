"""Tables, drawn by rich; long ones laid out here, since rich takes a second for 1000 rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from maxtool.cli.output import Output, printable
from maxtool.cli.text import elided, fold, padded, width

if TYPE_CHECKING:
    from rich.table import Table

# A column's header, and "left" or "right".
Column = tuple[str, str]
MAX_DRAWN = 1000
GAP = "  "
# Of a column that folds: terminals that leave it less wrap the lines themselves.
NARROWEST = 24
# Of a name, however deep it stands in a tree.
SHORTEST = 8


def table(*columns: Column) -> Table:
    """An empty table; the first column wraps where the terminal is narrow."""
    from rich.table import Table

    result = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for header, justify in columns:
        first = not result.columns
        overflow: Any = "fold" if first else "ellipsis"
        result.add_column(header, justify=justify, no_wrap=not first, overflow=overflow)  # type: ignore[arg-type]
    return result


def draw(out: Output, drawn: Table) -> None:
    """Print a table, apart from what is before it; piped, it is as wide as its contents need."""
    console = out.stdout
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        needed = console.measure(drawn, options=console.options.update(max_width=1 << 16))
        console.width = max(console.width, needed.maximum)
    out.gap()
    out.print(drawn)


def draw_names(out: Output, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of plain text whose first column holds names from files."""
    draw_labels(out, columns, ((Label(name), *rest) for name, *rest in rows))


class Label(NamedTuple):
    """A name from a file, and what stands around it."""

    name: str
    before: str = ""
    after: str = ""

    @property
    def plain(self) -> str:
        """All of it, fit for a terminal."""
        return f"{self.before}{printable(self.name)}{self.after}"

    def elided(self, most: int) -> Label:
        """The label in at most so many cells, if what is around the name leaves room for it."""
        room = most - width(self.before) - width(self.after)
        return self._replace(name=elided(printable(self.name), max(room, SHORTEST)))


Row: TypeAlias = tuple[Label, *tuple[str, ...]]


def draw_labels(out: Output, columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """The same with something before and after the names."""
    lines = list(rows)
    if out.stdout.is_terminal:
        room = _room(out, columns, lines)
        lines = [(label.elided(room), *rest) for label, *rest in lines]
    if len(lines) > MAX_DRAWN:
        write(out, columns, [(label.plain, *rest) for label, *rest in lines])
        return
    drawn = table(*columns)
    for label, *rest in lines:
        name = f"[dim]{label.before}[/]{out.escape(label.name)}[dim]{label.after}[/]"
        drawn.add_row(name, *rest)
    draw(out, drawn)


def _room(out: Output, columns: Sequence[Column], rows: Sequence[Row]) -> int:
    """Return the number of terminal cells that the other columns leave to names."""
    lines = [[header for header, _ in columns[1:]], *(rest for _, *rest in rows)]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return max(_spare(out, [0, *widths]), NARROWEST)


def write(
    out: Output,
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    *,
    folds: int | None = None,
) -> None:
    """Write the same lines as rich, but cut no cell, except for names that are too long to fold.

    The column ``folds`` takes several lines where a terminal is narrower than the table.
    """
    lines = [
        [header for header, _ in columns],
        *([printable(cell) for cell in row] for row in cells),
    ]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    if folds is not None and out.stdout.is_terminal:
        widths[folds] = max(widths[folds] + min(_spare(out, widths), 0), NARROWEST)
    sides = [side for _, side in columns]
    out.gap()
    for line in lines:
        for part in [line] if folds is None else _parts(line, folds, widths[folds]):
            out.text(GAP.join(map(padded, part, widths, sides)).rstrip())


def _parts(line: Sequence[str], folds: int, cells: int) -> Iterator[list[str]]:
    """The lines of one row: the first with all cells, the others with the rest of one."""
    for index, text in enumerate(fold(line[folds], cells)):
        part = [""] * len(line) if index else list(line)
        part[folds] = text
        yield part


def _spare(out: Output, widths: Sequence[int]) -> int:
    """The cells of a terminal that columns leave; negative where they are too wide."""
    return out.stdout.width - sum(widths) - len(GAP) * (len(widths) - 1)
