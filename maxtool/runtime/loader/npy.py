"""A NumPy file whose rows come one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from .memory import Array


@contextmanager
def appended(path: Path, width: int) -> Iterator[Callable[[Array], None]]:
    """Write float32 ``[any number, width]``, whole or not at all; gives what takes some rows."""
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    rows = 0
    try:
        with staging.open("xb") as stream:
            _write_header(stream, rows, width)

            def take(array: Array) -> None:
                nonlocal rows
                rows += len(array)
                stream.write(np.ascontiguousarray(array, "<f4").data)

            yield take
            stream.seek(0)
            _write_header(stream, rows, width)
            stream.flush()
            os.fsync(stream.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)


def _write_header(stream: BinaryIO, rows: int, width: int) -> None:
    """NumPy leaves room for the first dimension to grow, so the header's length is always one."""
    facts = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(stream, facts)
