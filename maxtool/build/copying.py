"""Copies of outputs, which appear whole or not at all, and what an output may not replace."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from maxtool.errors import MachineLacks, MissingFile, UsageError
from maxtool.files import check_output, staged

SHOWN = 10


def copy(source: Path, output: Path, known: Collection[str]) -> None:
    """Copy a file or a folder to a place, and replace what a copy before had put there.

    Args:
        source: What is copied.
        output: Where to; a file that is there is replaced.
        known: The files that were copied there before: a folder with others is not replaced.

    Raises:
        MissingFile: If there is no such file or folder, or a link in it leads nowhere.
        UsageError: If the output lies in or over the source, or holds other things.
        MachineLacks: If the system refuses to copy some of it.
    """
    if not source.exists():
        raise MissingFile("no such file or folder", file=source)
    if lost := [str(path) for path in source.rglob("*") if not path.exists()]:
        raise MissingFile("links lead nowhere", file=source, problems=sorted(lost)[:SHOWN])
    inside = [path for path in output.rglob("*") if path.is_symlink() or not path.is_dir()]
    strangers = [path for path in inside if str(path) not in known]
    if strangers:
        what = "the output is a folder that holds other files, and is not replaced"
        raise UsageError(what, file=output, problems=sorted(map(str, strangers))[:SHOWN])
    check_output(output, force=True, sources=(source,))
    with staged(output, folder=source.is_dir()) as path:
        if source.is_dir():
            _copy_folder(source, path)
        else:
            shutil.copyfile(source, path)


def check_file(output: Path, source: Path) -> None:
    """Refuse a file as output that would replace a folder, or lie in or over the source."""
    check_output(output, force=True, sources=(source,))
    if output.is_dir():
        raise UsageError("the output is a folder, and a file is written", file=output)


def _copy_folder(source: Path, output: Path) -> None:
    try:
        shutil.copytree(source, output, dirs_exist_ok=True)
    except shutil.Error as error:  # it goes on behind each, and tells all
        problems = [f"{path}: {why}" for path, _, why in error.args[0][:SHOWN]]
        what = "the system refuses to copy all of it"
        raise MachineLacks(what, file=source, problems=problems) from None
