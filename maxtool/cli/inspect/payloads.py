"""Output of payload queries: statistics, checksums, slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.output import Output, printable
from maxtool.cli.tables import Column, draw_names

if TYPE_CHECKING:
    from maxtool.weights.inspection import Inspection, SliceValues
    from maxtool.weights.stats import Stats

NUMBERS = ("min", "max", "mean", "std", "zeros")
# Shown where there are any.
RARE = ("nan", "inf")
# Elements beyond this are left out in the middle, as NumPy does.
MAX_VALUES = 1000


def show_stats(out: Output, inspection: Inspection) -> None:
    """One line of statistics per tensor."""
    tables = {name: stats.as_dict() for name, stats in inspection.stats.items()}
    rare = tuple(key for key in RARE if any(row[key] for row in tables.values()))
    columns: list[Column] = [("name", "left"), ("type", "left")]
    columns += [(key, "right") for key in (*NUMBERS, *rare)]
    types = {tensor.name: tensor.type_name for tensor in inspection.summary.tensors}
    rows = (
        (name, types[name], *(_cell(key, row[key]) for key in (*NUMBERS, *rare)))
        for name, row in tables.items()
    )
    draw_names(out, columns, rows)
    for name, stats in inspection.stats.items():
        _warn(out, name, stats)


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if key in NUMBERS[:4] else units.count(int(value))


def _warn(out: Output, name: str, stats: Stats) -> None:
    if stats.finite < stats.count:
        bad = f"{stats.nans:,} NaN and {stats.infinities:,} infinite"
        out.warn(f"{name}: {bad} of {units.plural(stats.count, 'element')}")


def show_digests(out: Output, inspection: Inspection) -> None:
    """Checksums as sha256sum prints them: of files, then of tensors."""
    lines = [
        (text, inspection.opened.shown(file)) for file, text in inspection.file_digests.items()
    ]
    lines += [(text, name) for name, text in inspection.digests.items()]
    out.text("")
    for text, name in lines:
        out.text(f"{text}  {name}")


def show_values(out: Output, values: SliceValues) -> None:
    """A slice: what it is of, then its elements."""
    import numpy as np

    from maxtool.weights.tensor_slices import readable

    tensor, array = values.tensor, readable(values.array)
    whole = f"{tensor.type_name} {units.shape(tensor.shape)}"
    part = "" if array.shape == tensor.shape else f" → {units.shape(array.shape)}"
    out.text(f"{tensor.name}{printable(values.text)}  {whole}{part}")
    text = np.array2string(array, threshold=MAX_VALUES, max_line_width=out.stdout.width)
    for line in text.splitlines():
        out.text(line)
