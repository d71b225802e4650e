"""Outputs that appear whole or not at all.

An output is written beside its place under a hidden name, flushed to the disk and renamed. Whatever
ends the work early, an interrupt included, leaves the old output as it was and nothing new behind.
Where a link is in the way, the link is replaced and never what it points at.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from maxtool.errors import MachineLacks, OutputExists, UsageError

HASH_CHUNK = 1 << 20


def check_output(path: Path, *, force: bool, sources: tuple[Path, ...] = ()) -> None:
    """Refuse an output that exists, or that lies in or over a source.

    Args:
        path: Where the output will be.
        force: Whether an existing output may be replaced.
        sources: Files and folders that are read; nothing is ever written into them.

    Raises:
        OutputExists: If ``path`` exists and ``force`` is false.
        UsageError: If ``path`` is a source, inside one, or around one, if it is around the working
            directory, or its folder is missing.
    """
    place = _place(path)
    for source in (source.resolve() for source in sources):
        if any(_overlap(target, source) for target in (place, path.resolve())):
            raise UsageError(
                "the output would overwrite the source or lie inside it",
                file=path,
                hint="choose another --output",
            )
    if Path.cwd().is_relative_to(place):
        raise UsageError("the output would replace the folder that this runs in", file=path)
    if not place.parent.is_dir():
        raise UsageError("the folder for the output does not exist", file=place.parent)
    if os.path.lexists(path) and not force:
        raise OutputExists("the output exists", file=path, hint="pass --force to replace it")


def check_space(path: Path, needed: int) -> None:
    """Refuse to start work that cannot fit.

    Raises:
        MachineLacks: If the file system for an output at ``path`` has fewer than ``needed`` bytes
            free.
    """
    folder = _place(path).parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MachineLacks(f"the output needs {needed} bytes and {free} are free", file=folder)


@contextmanager
def staged(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a hidden path beside ``path`` to write to; put it in place when the block succeeds.

    Args:
        path: Where the output appears, replacing what is there.
        folder: Whether the output is a folder; then the yielded folder exists and is empty.
    """
    place = _place(path)
    scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    staging = scratch / place.name
    try:
        if folder:
            staging.mkdir()
        yield staging
        _flush(staging)
        _replace(staging, place)
        _flush_entry(place.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sha256(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The file's SHA-256 in hexadecimal; ``progress`` is told the bytes of each read."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(HASH_CHUNK):
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
    return digest.hexdigest()


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


def _place(path: Path) -> Path:
    """Where an output appears: ``path`` without links or dots on the way to its last name."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _replace(staging: Path, place: Path) -> None:
    """Rename over ``place``; where a folder is involved, what is in the way is set aside first."""
    if not os.path.lexists(place) or not (staging.is_dir() or place.is_dir()):
        staging.replace(place)
        return
    aside = staging.with_name(f"{staging.name}.old")
    place.rename(aside)
    try:
        staging.replace(place)
    except BaseException:
        aside.rename(place)
        raise
