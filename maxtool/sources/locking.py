"""Locks of files in a cache, which keep other processes from bringing the same."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made; nothing is held on file systems without locks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
