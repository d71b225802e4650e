"""An npz file, looked at before anything in it is unpacked.

The directory of the archive says how long each array is, the array's header what it is: both are
held against what is taken before memory is asked for.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import BadInput, RunError, last_line
from .memory import Array

SUFFIX = ".npy"
MAX_HEADER = 10_000  # characters, which NumPy allows too
MAX_ENTRIES = 1 << 12
# An array may be unpacked to this many bytes, and beyond them to so many times its bytes here.
FREELY, INFLATION = 64 << 20, 100
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

# What is told the shape of each array that is to be read, and raises if they do not fit.
Look = Callable[[Mapping[str, tuple[int, ...]]], object]


def read_arrays(
    path: Path, wanted: Collection[str] | None = None, look: Look = lambda _shapes: None
) -> tuple[dict[str, Array], list[str]]:
    """The wanted arrays of an npz file, all if None, and the names of the others.

    Refused is what cannot be read, holds Python objects, or would unpack to many times its size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            infos = _infos(archive)
            chosen = infos.keys() if wanted is None else infos.keys() & set(wanted)
            shapes = {name: _shape(archive, infos[name]) for name in sorted(chosen)}
            look(shapes)
            arrays = {name: _array(archive, infos[name]) for name in shapes}
    except RunError as error:
        error.file = error.file or str(path)
        raise
    except OSError as error:
        what = f"the arrays cannot be read: {error.strerror or error}"
        raise BadInput(what, file=path) from None
    except MemoryError:
        raise
    except Exception as error:
        # zipfile, zlib and NumPy raise a dozen kinds for damaged files.
        raise BadInput(f"no npz file of plain arrays: {last_line(error)}", file=path) from None
    return arrays, sorted(infos.keys() - chosen)


def _infos(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays by name, none twice."""
    infos = archive.infolist()
    named = {info.filename.removesuffix(SUFFIX): info for info in infos}
    if len(infos) > MAX_ENTRIES or len(named) < len(infos):
        raise BadInput(f"an npz file with {len(infos)} arrays of {len(named)} names")
    return named


def _shape(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[int, ...]:
    """The shape of an array, which must need as many bytes as there are."""
    name = info.filename.removesuffix(SUFFIX)
    if info.file_size > max(FREELY, INFLATION * info.compress_size):
        packed = f"{info.compress_size} bytes"
        what = f"{packed} that unpack to {info.file_size}, more than {INFLATION} times as many"
        raise BadInput(what, tensor=name, hint="save the array without compression")
    with archive.open(info) as stream:
        shape, dtype, start = _read_header(stream)
    if dtype.hasobject:
        raise BadInput("an array of Python objects, which are never read", tensor=name)
    if math.prod(shape) * dtype.itemsize != info.file_size - start:
        what = f"{dtype}{list(shape)} in {info.file_size - start} bytes"
        raise BadInput(what, tensor=name)
    return shape


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape and type, and where the elements begin."""
    version = np.lib.format.read_magic(stream)
    if version not in HEADERS:
        raise BadInput(f"an array in version {version} of NumPy's format")
    shape, _, dtype = HEADERS[version](stream, max_header_size=MAX_HEADER)
    return shape, dtype, stream.tell()


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    with archive.open(info) as stream:
        array: Array = np.lib.format.read_array(
            stream, allow_pickle=False, max_header_size=MAX_HEADER
        )
    return array
