"""Writing an output beside its place, and putting it there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from maxtool.errors import OutputExists
from maxtool.files import leftovers, scratch
from maxtool.files.finished import NEW
from maxtool.files.journal import Journal
from maxtool.files.outputs import place, present_parts
from maxtool.files.renames import claim, exchange
from maxtool.files.scratch import Scratch

# Other processes may put something in the way, and take it away, this often.
ATTEMPTS = 100

# Outputs that were about to be put in place: as they were named, the place, and the file or folder.
_announced: list[tuple[Path, Path, os.stat_result]] = []


@contextmanager
def staged(
    path: Path,
    *,
    folder: bool = False,
    replace: bool = True,
    journal: Journal | None = None,
    told: bool = True,
) -> Iterator[Path]:
    """Yield a hidden path beside ``path`` to write to; put it in place when the block succeeds.

    Args:
        path: Where the output appears.
        folder: Whether the output is a folder; then the yielded folder exists and is empty.
        replace: Whether it replaces what is there then; ``OutputExists`` if it may not.
        journal: The journal that keeps finished files of the folder if the block fails, for the
            next run that has one; ``UsageError`` if that may not go on with what it finds.
        told: Whether :func:`written` names it.
    """
    where = place(path)
    held = scratch.beside(where)
    try:
        leftovers.begin(held, journal)
        if folder:
            held.staging.mkdir(exist_ok=True)
        yield held.staging
        _flush(held.staging)
        if told:
            _announced.append((path, where, held.staging.lstat()))
        if journal is not None:
            journal.placing(held.staging)
        _put(held, replace=replace)
        _flush_entry(where.parent)
    finally:
        held.end()


@contextmanager
def staged_parts(
    path: Path,
    *,
    parts: Sequence[str],
    old: re.Pattern[str],
    replace: bool = True,
    journal: Journal | None = None,
) -> Iterator[Path]:
    """Yield a hidden folder to write several files in; put them in place when the block succeeds.

    Args:
        path: What the output is called; its folder is where the files appear.
        parts: The names of the files; the first is what readers begin with.
        old: The names of files that belong to such an output, those in ``parts`` too.
        replace: Whether it replaces these; ``OutputExists`` if it may not.
        journal: The journal that keeps finished files, as of :func:`staged`.
    """
    where = place(path)
    held = scratch.beside(where)
    try:
        leftovers.begin(held, journal)
        folder = held.folder / NEW
        yield folder
        for part in parts:
            _flush_entry(folder / part)
        entry = folder / parts[0]
        _announced.append((path.with_name(parts[0]), where.with_name(parts[0]), entry.lstat()))
        if journal is not None:
            journal.placing(entry)
        _put_parts(held, parts, old, replace=replace)
        _flush_entry(where.parent)
    finally:
        held.end()


def _put_parts(held: Scratch, parts: Sequence[str], old: re.Pattern[str], *, replace: bool) -> None:
    """Move the parts to their places, with no other process doing the like there."""
    held.alone.hold(held.place.parent)
    present = present_parts(held.place, old)
    if present and not replace:
        raise _written_meanwhile(held.place.with_name(present[0]))
    try:
        held.moves.put(parts, present)
    except FileExistsError as error:
        raise _written_meanwhile(Path(error.filename2 or error.filename)) from None


def _written_meanwhile(path: Path) -> OutputExists:
    what, hint = "another process has written the output meanwhile", "pass --force to replace it"
    return OutputExists(what, file=path, hint=hint)


def written() -> list[Path]:
    """The outputs that :func:`staged` put in place and that are there, whatever came after.

    They are looked for and not remembered: an interrupt may come right behind a rename.
    """
    return [path for path, where, status in _announced if _is(where, status)]


def forget_written() -> None:
    """Restart the list that :func:`written` returns."""
    _announced.clear()


def _is(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), status)
    except OSError:
        return False


def _put(held: Scratch, *, replace: bool) -> None:
    """Move the output to its path; nothing else is ever visible there."""
    for _ in range(ATTEMPTS):
        try:
            return claim(held.staging, held.place)
        except FileExistsError:
            if not replace:
                raise _written_meanwhile(held.place) from None
        try:
            return _replace(held)
        except (FileNotFoundError, FileExistsError):  # it is gone again, or in the way again
            continue
    raise OutputExists("other processes keep replacing the output", file=held.place)


def _replace(held: Scratch) -> None:
    """Replace what is there; where names cannot be exchanged, it is set aside for a moment."""
    staging, where = held.staging, held.place
    if not staging.is_dir() and (where.is_symlink() or not where.is_dir()):
        where.lstat()
        staging.replace(where)
    elif not exchange(staging, where):
        shutil.rmtree(held.aside, ignore_errors=True)
        where.rename(held.aside)
        claim(staging, where)


def _flush(path: Path) -> None:
    """Flush a file, or every file below a folder and the folders themselves."""
    for below in sorted(path.rglob("*"), reverse=True) if path.is_dir() else ():
        _flush_entry(below)
    _flush_entry(path)


def _flush_entry(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
