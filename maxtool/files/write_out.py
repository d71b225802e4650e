"""Telling the system to begin with what has been written, so that the flush in the end is short."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache

# linux/fs.h: begin to write what is changed in memory, and wait for nothing.
SYNC_FILE_RANGE_WRITE = 2


def begin_write_out(descriptor: int, start: int, count: int) -> None:
    """Begin to bring ``count`` bytes of a file from ``start`` on to its disk; do not wait.

    It is advice alone: nothing is done where the system has no such call, or the file no disk.
    """
    _sync_file_range()(descriptor, start, count, SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], object]:
    """The call of Linux's C libraries; it returns an error, and raises none."""
    with suppress(OSError, AttributeError):
        found = ctypes.CDLL(None).sync_file_range
        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
        return found
    return lambda *_: None
