"""Checks of where an output may go."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from maxtool.errors import MachineLacks, OutputExists, UsageError
from maxtool.files.leftovers import clear, kept_parts


def check_output(path: Path, *, force: bool, sources: tuple[Path, ...] = ()) -> None:
    """Refuse an output that exists, unless ``force`` is set, or that lies in or over a source.

    Sources are files and folders that are read; nothing is ever written into them. What killed
    processes left in the output's folder is put back or removed before.
    """
    if "\0" in str(path):
        raise UsageError(f"the name of the output holds a null character: {str(path)!r}")
    where = place(path)
    _check_sources(path, sources)
    if Path.cwd().is_relative_to(where):
        raise UsageError("the output would replace the folder that this runs in", file=path)
    if not where.parent.is_dir():
        what = "the folder for the output does not exist"
        hint = f"make it first: mkdir -p {shlex.quote(str(where.parent))}"
        raise UsageError(what, file=where.parent, hint=hint)
    clear(where.parent)
    if os.path.lexists(path) and not force:
        raise OutputExists("the output exists", file=path, hint="pass --force to replace it")


def check_parts(
    path: Path, old: re.Pattern[str], *, force: bool, sources: tuple[Path, ...] = ()
) -> None:
    """Check the files that an output of several would replace, as :func:`check_output` does."""
    for name in present_parts(place(path), old):
        file = path.with_name(name)
        _check_sources(file, sources)
        if file.is_dir() and not file.is_symlink():
            raise UsageError("a folder has the name of a part of the output", file=file)
        if not force:
            raise OutputExists("the output exists", file=file, hint="pass --force to replace it")


def present_parts(where: Path, old: re.Pattern[str]) -> list[str]:
    """The names of files beside an output's place that belong to it, sorted."""
    names = (entry.name for entry in where.parent.iterdir())
    return sorted(name for name in names if old.fullmatch(name))


def shortage(path: Path, needed: int) -> str | None:
    """Tell that the file system of an output has too few bytes free, where it has.

    What an interrupted run has kept of the output is part of the new one, or makes room for it.
    """
    where = place(path)
    free = shutil.disk_usage(where.parent).free + sum(part.nbytes for part in kept_parts(where))
    return f"the output needs {needed} bytes and {free} are free" if free < needed else None


def check_space(path: Path, needed: int) -> None:
    """Refuse to start work for which the file system of an output has too few bytes free."""
    if what := shortage(path, needed):
        raise MachineLacks(what, file=place(path).parent)


def place(path: Path) -> Path:
    """The place of an output: ``path`` without links or dots on the way to its last name."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def _check_sources(path: Path, sources: tuple[Path, ...]) -> None:
    for source in (source.resolve() for source in sources):
        if any(_overlap(target, source) for target in (place(path), path.resolve())):
            what = "the output would overwrite the source or lie inside it"
            raise UsageError(what, file=path, hint="choose another --output")


def _overlap(path: Path, other: Path) -> bool:
    return path.is_relative_to(other) or other.is_relative_to(path)
