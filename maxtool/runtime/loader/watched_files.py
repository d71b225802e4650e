"""Files that must stay as they were when the model was loaded."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from .errors import BadInput
from .memory import Array

# Bytes, the time of the last change in nanoseconds, and the number of the file.
Stamp: TypeAlias = tuple[int, int, int]


def stamp(file: Path | int) -> Stamp:
    """The stamp that tells a file from what it was before; of a path, or of an open file."""
    status = file.stat() if isinstance(file, Path) else os.fstat(file)
    return status.st_size, status.st_mtime_ns, status.st_ino


def check_stamp(path: Path, expected: Stamp, file: Path | int | None = None) -> None:
    """Refuse a file that was changed since its stamp was taken.

    Args:
        path: What messages call it.
        expected: Its stamp.
        file: What is looked at; what lies at ``path`` by now if None.

    Raises:
        BadInput: If it was changed, or is gone.
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

    Args:
        stamps: The files, and what they were when the manifest was read.

    Raises:
        BadInput: If one was changed since.
    """

    def __init__(self, stamps: Mapping[Path, Stamp]) -> None:
        self._stamps = stamps
        self._open = {path: self._opened(path) for path in stamps}
        self.check()

    def check(self) -> None:
        """Look at all of them; raises ``BadInput`` that names one that was changed."""
        for path, expected in self._stamps.items():
            check_stamp(path, expected, self._open[path])

    def mapped(self, path: Path) -> Array:
        """The bytes of one of them, which may be written: the file stays as it is."""
        if not self._stamps[path][0]:  # nothing cannot be mapped
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(self._open[path], 0, access=mmap.ACCESS_COPY), np.uint8)

    def _opened(self, path: Path) -> int:
        try:
            number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            what = f"the file cannot be read: {error.strerror}"
            raise BadInput(what, file=path) from None
        weakref.finalize(self, os.close, number)
        return number
