"""Files that must stay as they were when the model was loaded."""

from __future__ import annotations

import mmap
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from .errors import BadInput, reading
from .memory import Array

# Advice to read a file into huge pages, which are mapped as a whole: the first pass over a gigabyte
# takes half as long. None where the system has no such advice.
HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)

# Bytes, the time of the last change in nanoseconds, and the number of the file.
Stamp: TypeAlias = tuple[int, int, int]


def stamp(file: Path | int) -> Stamp:
    """The stamp that tells a file from what it was before; of a path, or of an open file."""
    status = file.stat() if isinstance(file, Path) else os.fstat(file)
    return status.st_size, status.st_mtime_ns, status.st_ino


def check_stamp(path: Path, expected: Stamp, file: int | None = None) -> None:
    """Refuse a file that was changed since its stamp was taken, or is gone.

    An open ``file`` is looked at instead of what lies at ``path`` by now.
    """
    try:
        same = stamp(path if file is None else file) == expected
    except OSError:
        same = False
    if not same:
        what = "the file was changed after the model was loaded"
        raise BadInput(what, file=path, hint="load the model again")


class WatchedFile:
    """A file that is mapped while a model is in memory, as it was when the manifest was read.

    A page of a mapped file that is cut off cannot be read: the process gets a signal that ends it.
    So a change is looked for before each call. The file is held open, so that a folder that is
    replaced as a whole disturbs nobody who runs what was in it.
    """

    def __init__(self, path: Path, expected: Stamp) -> None:
        self._path, self._stamp = path, expected
        with reading("the file", path):
            self._number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._number)
        self.check()

    def check(self) -> None:
        """Refuse to go on when it was changed."""
        check_stamp(self._path, self._stamp, self._number)

    def mapped(self) -> Array:
        """The bytes of the file, which may be written: it stays as it is on the disk."""
        if not self._stamp[0]:  # nothing cannot be mapped
            return np.zeros(0, np.uint8)
        mapping = mmap.mmap(self._number, 0, access=mmap.ACCESS_COPY)
        if HUGE_PAGES is not None:
            with suppress(OSError):  # a kernel without them
                mapping.madvise(HUGE_PAGES)
        return np.frombuffer(mapping, np.uint8)
