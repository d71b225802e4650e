"""Telling the system what will be written, and to begin with what has been, so that less is left.

Both are advice: nothing is done where the system has no such call, or the file no disk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache

# linux/fs.h: begin to write what is changed in memory, and wait for nothing.
SYNC_FILE_RANGE_WRITE = 2


def begin_write_out(descriptor: int, start: int, count: int) -> None:
    """Begin to bring ``count`` bytes of a file from ``start`` on to its disk; do not wait."""
    numbers = ctypes.c_int64(start), ctypes.c_int64(count)
    _call("sync_file_range")(descriptor, *numbers, ctypes.c_uint(SYNC_FILE_RANGE_WRITE))


def reserve(descriptor: int, count: int) -> None:
    """Give an empty file room for ``count`` bytes at once, which are zeros until they are written.

    Where there is not so much room, writing will say so. ``os.posix_fallocate`` would write to
    every block where the file system has no such call.
    """
    _call("fallocate")(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(count))


@cache
def _call(name: str) -> Callable[..., object]:
    """A call of Linux's C libraries; it returns an error, and raises none."""
    with suppress(OSError, AttributeError):
        found: Callable[..., object] = getattr(ctypes.CDLL(None), name)
        return found
    return lambda *_: None
