"""Errors of recipes beside what transformers computed, as docs/models.md tells them.

    python -m tests.variants.errors [FAMILY ...]

computes them anew, of all random configurations that were recorded and are read, and writes them
into the table.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from maxtool.conversion import Request, convert, prepare
from maxtool.recipe import find_recipe
from tests.data.random_configs import ENCODERS
from tests.parity.measure import logits
from tests.variants.refused import recorded
from tests.variants.rows import RANDOM, Files, Row, error, inputs, rows, sample

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
DECODERS = tuple(family for family in RANDOM if family not in ENCODERS)
# Of recipes: a name, what is covered, an error of folders, one of GGUF files or why there is none.
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \| (\d\.\de-\d\d) \| (\d\.\de-\d\d|\([^|]*\)) \|", re.M)


# What stands before their tables: those of recipes above it are compiled.
GRAPHS = "are compared by their graphs"


class Errors(NamedTuple):
    """The largest errors of a recipe's folders and GGUF files, these None where there is none."""

    folders: float
    files: float | None


def told() -> dict[str, Errors]:
    """Return the errors that the page tells, by recipe."""
    found = ROW.findall(PAGE.read_text().partition(GRAPHS)[2])
    return {
        name: Errors(float(folders), None if files.startswith("(") else float(files))
        for name, _, folders, files in found
    }


def recipe_of(family: str, folder: Path) -> str:
    """Return the recipe that reads a family's folders."""
    return find_recipe(Files(folder).checkpoint(next(rows(family)))).name


def of_folders(family: str, folder: Path) -> Iterator[float]:
    """Yield the error of each configuration's folder."""
    files = Files(folder)
    for row in computed(family):
        yield _error(row, files.checkpoint(row).path)


def of_files(family: str, folder: Path) -> Iterator[float]:
    """Yield the error of the GGUF file made of each that llama.cpp's converter takes, too."""
    files = Files(folder)
    for number, row in enumerate(row for row in computed(family) if "gguf" in row.more):
        output = folder / f"{number}.gguf"
        convert(prepare(Request(files.checkpoint(row).path, output)))
        yield _error(row, output)
        output.unlink()


def computed(family: str) -> Iterator[Row]:
    """Yield the configurations that transformers computes, and that are not refused here."""
    listed = {*recorded().get(family, ())}
    return (
        row
        for row in rows(family)
        if row.expected is not None and f"{row.base} {json.dumps(row.change)}" not in listed
    )


def _error(row: Row, path: Path) -> float:
    return error(sample(logits(path, inputs(row)["input_ids"])), row.expected)


def _measured(families: list[str]) -> dict[str, Errors]:
    result: dict[str, Errors] = {}
    for family in families:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            recipe = recipe_of(family, folder / "recipe")
            folders = max(of_folders(family, folder / "folders"))
            (folder / "files").mkdir()
            files = max(of_files(family, folder / "files"), default=None)
        before = result.get(recipe, Errors(0.0, None))
        both = [one for one in (before.files, files) if one is not None]
        result[recipe] = Errors(max(before.folders, folders), max(both, default=None))
        sys.stdout.write(f"{family} {recipe} {result[recipe]}\n")
        sys.stdout.flush()
    return result


def _write(measured: dict[str, Errors]) -> None:
    def row(match: re.Match[str]) -> str:
        name, covered, _, files = match.groups()
        if name not in measured:
            return match[0]
        found = measured[name]
        made = files if found.files is None else f"{found.files:.1e}"
        return f"| `{name}` | {covered} | {found.folders:.1e} | {made} |"

    before, between, tables = PAGE.read_text().partition(GRAPHS)
    PAGE.write_text(before + between + ROW.sub(row, tables))
    for name in sorted(measured.keys() - told().keys()):
        sys.stdout.write(f"{name} is in none of these tables\n")


if __name__ == "__main__":
    _write(_measured(sys.argv[1:] or [*DECODERS]))
