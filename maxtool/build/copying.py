"""Copies of outputs, which appear whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from maxtool.errors import MissingFile, UsageError
from maxtool.files import check_output, staged

SHOWN = 10


def copy(source: Path, output: Path, known: Collection[str]) -> None:
    """Copy a file or a folder to a place, and replace what a copy before had put there.

    Args:
        source: What is copied.
        output: Where to; a file that is there is replaced.
        known: The files that were copied there before: a folder with others is not replaced.

    Raises:
        MissingFile: If there is no such file or folder.
        UsageError: If the output lies in or over the source, or holds other things.
    """
    if not source.exists():
        raise MissingFile("no such file or folder", file=source)
    strangers = [file for file in output.rglob("*") if file.is_file() and str(file) not in known]
    if strangers:
        what = "the output is a folder that holds other files, and is not replaced"
        raise UsageError(what, file=output, problems=sorted(map(str, strangers))[:SHOWN])
    check_output(output, force=True, sources=(source,))
    with staged(output, folder=source.is_dir()) as path:
        if source.is_dir():
            shutil.copytree(source, path, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, path)
