"""Files of arrays that programs write: whole, or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from .archive import SUFFIX
from .memory import Array


@contextmanager
def staged(path: Path) -> Iterator[BinaryIO]:
    """Write a file, which appears at its place when all of it is on the disk."""
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with staging.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an npz file."""
    # Not savez: an array may have the name of one of its parameters.
    with staged(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}{SUFFIX}", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@contextmanager
def appended(path: Path, width: int) -> Iterator[Callable[[Array], None]]:
    """Write float32 ``[any number, width]`` to an npy file; gives what takes some rows."""
    rows = 0
    with staged(path) as stream:
        _write_header(stream, rows, width)

        def take(array: Array) -> None:
            nonlocal rows
            rows += len(array)
            stream.write(np.ascontiguousarray(array, "<f4").data)

        yield take
        stream.seek(0)
        _write_header(stream, rows, width)


def _write_header(stream: BinaryIO, rows: int, width: int) -> None:
    """NumPy leaves room for the first dimension to grow, so the header's length is always one."""
    facts = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(stream, facts)
