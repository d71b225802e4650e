"""Checks of where an output may go."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from maxtool.errors import MachineLacks, OutputExists, UsageError
from maxtool.files.scratch import clear


def check_output(path: Path, *, force: bool, sources: tuple[Path, ...] = ()) -> None:
    """Refuse an output that exists, unless ``force`` is set, or that lies in or over a source.

    Sources are files and folders that are read; nothing is ever written into them. What killed
    processes left in the output's folder is put back or removed before.
    """
    if "\0" in str(path):
        raise UsageError(f"the name of the output holds a null character: {str(path)!r}")
    where = place(path)
    for source in (source.resolve() for source in sources):
        if any(_overlap(target, source) for target in (where, path.resolve())):
            what = "the output would overwrite the source or lie inside it"
            raise UsageError(what, file=path, hint="choose another --output")
    if Path.cwd().is_relative_to(where):
        raise UsageError("the output would replace the folder that this runs in", file=path)
    if not where.parent.is_dir():
        what = "the folder for the output does not exist"
        hint = f"make it first: mkdir -p {shlex.quote(str(where.parent))}"
        raise UsageError(what, file=where.parent, hint=hint)
    clear(where.parent)
    if os.path.lexists(path) and not force:
        raise OutputExists("the output exists", file=path, hint="pass --force to replace it")


def check_space(path: Path, needed: int) -> None:
    """Refuse to start work for which the file system of an output has too few bytes free."""
    folder = place(path).parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MachineLacks(f"the output needs {needed} bytes and {free} are free", file=folder)


def place(path: Path) -> Path:
    """The place of an output: ``path`` without links or dots on the way to its last name."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def _overlap(path: Path, other: Path) -> bool:
    return path.is_relative_to(other) or other.is_relative_to(path)
