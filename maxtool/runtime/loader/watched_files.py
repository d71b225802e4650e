"""Files that must stay as they were when the model was loaded."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from .errors import BadInput, reading
from .memory import Array

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


class WatchedFiles:
    """Files that are mapped while a model is in memory, as they were when it was loaded.

    A page of a mapped file that is cut off cannot be read: the process gets a signal that ends it.
    So a change is looked for before each call. The files are held open, so that a folder that is
    replaced as a whole disturbs nobody who runs what was in it.
    """

    def __init__(self, stamps: Mapping[Path, Stamp]) -> None:
        self._stamps = stamps
        self._open = {path: self._opened(path) for path in stamps}
        self.check()

    def check(self) -> None:
        """Refuse to go on when one of them was changed."""
        for path, expected in self._stamps.items():
            check_stamp(path, expected, self._open[path])

    def mapped(self, path: Path) -> Array:
        """The bytes of one of them, which may be written: the file stays as it is."""
        if not self._stamps[path][0]:  # nothing cannot be mapped
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(self._open[path], 0, access=mmap.ACCESS_COPY), np.uint8)

    def _opened(self, path: Path) -> int:
        with reading("the file", path):
            number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, number)
        return number
