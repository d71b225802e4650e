"""Outputs that appear whole or not at all.

An output is written beside its place under a hidden name, flushed to the disk and renamed. Whatever
ends the work early, an interrupt included, leaves the old output as it was and nothing new behind.
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
        UsageError: If ``path`` is a source, inside one, or around one, or its folder is missing.
    """
    target = path.resolve()
    for source in (source.resolve() for source in sources):
        if target == source or source in target.parents or target in source.parents:
            raise UsageError(
                "the output would overwrite the source or lie inside it",
                file=path,
                hint="choose another --output",
            )
    if not target.parent.is_dir():
        raise UsageError("the folder for the output does not exist", file=target.parent)
    if os.path.lexists(path) and not force:
        raise OutputExists("the output exists", file=path, hint="pass --force to replace it")


def check_space(folder: Path, needed: int) -> None:
    """Refuse to start work that cannot fit.

    Raises:
        MachineLacks: If the file system of ``folder`` has fewer than ``needed`` bytes free.
    """
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
    parent = path.resolve().parent
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=parent))
    staging = scratch / path.name
    try:
        if folder:
            staging.mkdir()
        yield staging
        _flush(staging)
        _replace(staging, path)
        _flush_entry(parent)
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


def _replace(staging: Path, path: Path) -> None:
    """Rename over ``path``; a folder in the way is set aside first, since rename refuses it."""
    if not (path.is_dir() and not path.is_symlink()):
        staging.replace(path)
        return
    aside = staging.parent / "replaced"
    path.rename(aside)
    try:
        staging.replace(path)
    except BaseException:
        aside.rename(path)
        raise
