"""Writing of NumPy's archives (.npz): a zip archive of arrays, none of them compressed.

Layout: numpy.lib.format's documentation, and .ZIP File Format Specification (APPNOTE) 6.3. The time
of every entry is the oldest that the format has, so that the same tensors give the same bytes.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as numpy_format

from maxtool.dtype import DType
from maxtool.weights.formats.npz import MAX_DIMS, SUFFIX
from maxtool.weights.formats.payload import (
    CHUNK_BYTES,
    Digest,
    Payload,
    Progress,
    check_held,
    paired,
    write_payload,
)
from maxtool.weights.names import stays_inside
from maxtool.weights.tensor_info import TensorSpec

OLDEST = (1980, 1, 1, 0, 0, 0)
# Bytes of a header before an entry, with its 64-bit sizes; of one in the directory; of the ends.
LOCAL, CENTRAL, END, END_64 = 30 + 20, 46, 22, 56 + 20


def check(specs: Sequence[TensorSpec]) -> None:
    """Check that the format can hold all of ``specs``; ``ModelMismatch`` lists those it cannot."""
    check_held("an .npz file", specs, _unfit)


def _unfit(spec: TensorSpec) -> str | None:
    """Return the reason why the format cannot hold a tensor, or ``None``."""
    if spec.encoding is not None:
        return f"{spec.encoding.name} blocks cannot be stored in it"
    if spec.dtype is DType.bfloat16 or (spec.dtype.is_float() and spec.dtype.size_in_bytes < 2):
        return f"NumPy has no {spec.dtype.name}; --dtype float32 writes what it has"
    if not stays_inside(spec.name) or len(spec.shape) > MAX_DIMS:
        return "its name or shape is not one of such a file"
    return None


def header(
    specs: Sequence[TensorSpec], _metadata: Mapping[str, object] | None = None
) -> tuple[bytes, list[int]]:
    """The bytes before the first entry, where each payload starts, and where the file ends."""
    offsets, position, directory = [], 0, 0
    for spec in specs:
        name = len(f"{spec.name}{SUFFIX}".encode())
        begin = len(_beginning(spec))
        wide = 2 * (begin + spec.nbytes > zipfile.ZIP64_LIMIT) + (position > zipfile.ZIP64_LIMIT)
        directory += CENTRAL + name + (4 + 8 * wide if wide else 0)
        offsets.append(position + LOCAL + name + begin)
        position = offsets[-1] + spec.nbytes
    wide = (
        len(specs) > zipfile.ZIP_FILECOUNT_LIMIT or max(position, directory) > zipfile.ZIP64_LIMIT
    )
    return b"", [*offsets, position + directory + END + (END_64 if wide else 0)]


def _beginning(spec: TensorSpec) -> bytes:
    """The header of an array, as NumPy writes it."""
    sink = io.BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(spec.stored_dtype),
        "fortran_order": False,
        "shape": spec.shape,
    }
    numpy_format.write_array_header_1_0(sink, description)
    return sink.getvalue()


def write(
    path: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Payload],
    _metadata: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    digest: Digest | None = None,
) -> None:
    """Write an archive, checked as by :func:`check`; arguments are as for ``write_file``.

    The checksum of an entry stands before its payload and is written behind it. So the digest is
    made of the file once it is there.
    """
    check(specs)
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for spec, array in paired(specs, arrays):
            entry = zipfile.ZipInfo(f"{spec.name}{SUFFIX}", OLDEST)
            with archive.open(entry, "w", force_zip64=True) as stream:
                stream.write(_beginning(spec))
                write_payload(stream, spec, array, progress)
    if digest is not None:
        with path.open("rb") as whole:
            while part := whole.read(CHUNK_BYTES):
                digest.update(part)
