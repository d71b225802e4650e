"""Locks of files in a cache, and places in it that one process alone writes to."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# The ending of names that no other process has, and seconds after which its process has ended.
ANEW, DAY = ".maxtool.new", 86400.0


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which is made; yield whether it is held.

    It is not on file systems without locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as lock:
        yield _is_held(lock.fileno())


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextmanager
def own_part(part: Path, *, is_held: bool) -> Iterator[Path]:
    """Yield the path for a content on its way, which this process alone writes to.

    Args:
        part: The path where the content is held: it stays if the block fails, so that another
            process can go on from there.
        is_held: Whether it is; otherwise the path is a new one, which does not stay.
    """
    if is_held:
        yield part
        return
    with new_name(part.parent) as path:
        yield path


@contextmanager
def new_name(folder: Path) -> Iterator[Path]:
    """Yield a path in a folder that nothing has; what is there after the block is removed.

    So is what processes that were killed left a day ago.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"*{ANEW}"):
        with suppress(OSError):
            if left.lstat().st_mtime < time.time() - DAY:
                left.unlink()
    path = folder / f"{os.urandom(16).hex()}{ANEW}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
