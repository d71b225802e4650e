"""Tables, drawn by rich; long ones laid out here, since rich takes a second for 1000 rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from maxtool.cli.output import Output, printable

if TYPE_CHECKING:
    from rich.table import Table

# A column's header, and "left" or "right".
Column = tuple[str, str]
MAX_DRAWN = 1000
GAP = "  "
# Of a column that folds: terminals that leave it less wrap the lines themselves.
NARROWEST = 24


def table(*columns: Column) -> Table:
    """An empty table; the first column wraps where the terminal is narrow."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for header, justify in columns:
        first = not made.columns
        overflow: Any = "fold" if first else "ellipsis"
        made.add_column(header, justify=justify, no_wrap=not first, overflow=overflow)  # type: ignore[arg-type]
    return made


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


def draw_labels(
    out: Output, columns: Sequence[Column], rows: Iterable[tuple[Label, *tuple[str, ...]]]
) -> None:
    """The same with something before and after the names."""
    lines = list(rows)
    if len(lines) > MAX_DRAWN:
        write(out, columns, [(label.plain, *rest) for label, *rest in lines])
        return
    drawn = table(*columns)
    for label, *rest in lines:
        name = f"[dim]{label.before}[/]{out.escape(label.name)}[dim]{label.after}[/]"
        drawn.add_row(name, *rest)
    draw(out, drawn)


def write(
    out: Output,
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    *,
    folds: int | None = None,
) -> None:
    """The same lines as rich's, but never cut.

    Args:
        out: Where to.
        columns: Headers.
        cells: Rows of plain text.
        folds: The column that takes several lines where a terminal is narrower than the table.
    """
    lines = [
        [header for header, _ in columns],
        *([printable(cell) for cell in row] for row in cells),
    ]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    if folds is not None and out.stdout.is_terminal:
        spare = out.stdout.width - sum(widths) - len(GAP) * (len(widths) - 1)
        widths[folds] = max(widths[folds] + min(spare, 0), NARROWEST)
    out.gap()
    for line in lines:
        for part in [line] if folds is None else _parts(line, folds, widths[folds]):
            out.text(GAP.join(map(_padded, part, widths, columns)).rstrip())


def _parts(line: Sequence[str], folds: int, width: int) -> Iterator[list[str]]:
    """The lines of one row: the first with all cells, the others with the rest of one."""
    for index, text in enumerate(fold(line[folds], width)):
        part = [""] * len(line) if index else list(line)
        part[folds] = text
        yield part


def fold(text: str, width: int) -> list[str]:
    """A text as lines of at most ``width`` cells, ended at spaces and after dots where it can."""
    from rich.cells import chop_cells

    lines = [""]
    for piece in re.findall(r"[^. ]*[. ]*", text):
        if _width(lines[-1] + piece.rstrip()) <= width:
            lines[-1] += piece
        else:
            lines += chop_cells(piece, width)
    return [line.rstrip() for line in lines if line.strip()] or [text]


def _padded(text: str, width: int, column: Column) -> str:
    spaces = " " * (width - _width(text))
    return text + spaces if column[1] == "left" else spaces + text


def _width(text: str) -> int:
    """Cells on a terminal."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)
