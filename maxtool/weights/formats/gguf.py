"""GGUF: typed key/values, tensor descriptions, and aligned payloads.

Read: versions 2 and 3, little-endian. Written: version 3. The layout is that of ggml's gguf.md and
the limits are llama.cpp's, which also demands payloads in the order of their descriptions, each at
the next multiple of the alignment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from maxtool.dtype import BY_GGUF as DTYPES
from maxtool.dtype import TABLE, DType
from maxtool.errors import InputError, ModelMismatch
from maxtool.quantization.encoding import BY_GGUF as ENCODINGS
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.cursor import Cursor
from maxtool.weights.formats import gguf_values
from maxtool.weights.formats.file_index import FileIndex, check_inside
from maxtool.weights.formats.payload import Digest, Payload, Progress, check_held, write_file
from maxtool.weights.jsonfile import uncollected
from maxtool.weights.tensor_info import TensorInfo, TensorSpec

MAGIC = b"GGUF"
VERSION = 3
VERSIONS = (2, 3)
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32

MAX_KEYS = 1 << 16
# llama.cpp merges a layer's experts; the largest published file has fewer than 5000.
MAX_TENSORS = 100_000
MAX_KEY_BYTES = (1 << 16) - 1
MAX_NAME_BYTES = 64
MAX_DIMS = 4
MAX_DIM = (1 << 63) - 1
MAX_ALIGNMENT = 1 << 20
# The smallest key/value: an empty length, a one-byte key, a type, a one-byte value.
LEAST_KEY_BYTES = 8 + 1 + 4 + 1
# The smallest description: a one-byte name with its length, no dimensions, a type, an offset.
LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8

Kind = tuple[DType, QuantizationEncoding | None]
KINDS: dict[int, Kind] = {
    **{code: (dtype, None) for code, dtype in DTYPES.items()},
    **{code: (DType.float32, encoding) for code, encoding in ENCODINGS.items()},
}


# After the number of dimensions: the dimensions, the type, the payload's offset.
_DESCRIPTIONS = tuple(struct.Struct(f"<{n_dims}QIQ") for n_dims in range(MAX_DIMS + 1))


class _Description(NamedTuple):
    """One tensor as described, before its payload's place is checked."""

    spec: TensorSpec
    offset: int
    at: int


def read_header(cursor: Cursor) -> FileIndex:
    """Read and check a header; the payloads need not be at hand."""
    _check_magic(cursor)
    n_tensors = cursor.count("the tensor count", each=LEAST_TENSOR_BYTES, most=MAX_TENSORS)
    n_keys = cursor.count("the key count", each=LEAST_KEY_BYTES, most=MAX_KEYS)
    metadata = _read_metadata(cursor, n_keys)
    alignment = _alignment(metadata, cursor)
    with uncollected():
        descriptions = [_read_description(cursor) for _ in range(n_tensors)]
        _check_names(descriptions, cursor)
        return FileIndex(_place(descriptions, cursor, alignment), metadata)


def _check_magic(cursor: Cursor) -> None:
    if cursor.take(4, "the magic") != MAGIC:
        cursor.fail("not a GGUF file: it does not begin with 'GGUF'", offset=0)
    version = cursor.u32("the version")
    if version in VERSIONS:
        return
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        what = "a big-endian GGUF file; only little-endian ones are read"
        raise InputError(what, file=cursor.file)
    hint = "convert it with a llama.cpp of its time" if version == 1 else None
    raise InputError(f"GGUF version {version}; 2 and 3 are read", file=cursor.file, hint=hint)


def _read_metadata(cursor: Cursor, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    reader = gguf_values.ValueReader(cursor)
    for _ in range(count):
        start = cursor.position
        key = cursor.name("a key", most=MAX_KEY_BYTES)
        if key in metadata:
            cursor.fail(f"the key {key!r} is there twice", offset=start)
        metadata[key] = reader.read(key)
    return metadata


def _alignment(metadata: Mapping[str, object], cursor: Cursor) -> int:
    value = metadata.get(ALIGNMENT_KEY)
    alignment = gguf_values.whole_number(value, DEFAULT_ALIGNMENT)
    if alignment is None or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        cursor.fail(f"{ALIGNMENT_KEY} is {value}, not a power of two up to {MAX_ALIGNMENT}")
    return alignment


def _read_description(cursor: Cursor) -> _Description:
    start = cursor.position
    name = cursor.name("a tensor name", most=MAX_NAME_BYTES)
    n_dims = cursor.u32("the number of dimensions")
    if n_dims > MAX_DIMS:
        cursor.fail(f"{n_dims} dimensions; at most {MAX_DIMS}", offset=start, tensor=name)
    *dims, code, offset = cursor.unpack(_DESCRIPTIONS[n_dims], "the tensor's description")
    if dims and max(dims) > MAX_DIM:
        cursor.fail(f"dimensions {dims} are out of range", offset=start, tensor=name)
    if code not in KINDS:
        cursor.fail(f"tensor type {code} is unknown", offset=start, tensor=name)
    dtype, encoding = KINDS[code]
    spec = TensorSpec(name, dtype, tuple(reversed(dims)), encoding)
    return _Description(spec, offset, start)


def _check_names(descriptions: Sequence[_Description], cursor: Cursor) -> None:
    seen: set[str] = set()
    for spec, _, at in descriptions:
        if spec.name in seen:
            cursor.fail("the tensor is there twice", offset=at, tensor=spec.name)
        seen.add(spec.name)


def _place(
    descriptions: Sequence[_Description], cursor: Cursor, alignment: int
) -> tuple[TensorInfo, ...]:
    """Check that payloads follow each other, aligned, to the end of the file."""
    start = end = _align(cursor.position, alignment)
    tensors = []
    for spec, begin, at in descriptions:
        offset, expected = start + begin, _align(end, alignment)
        if offset != expected:
            problem = "overlaps the one before" if offset < expected else "leaves a hole before it"
            what = f"the payload is at {offset}, not at {expected}: it {problem}"
            cursor.fail(what, offset=at, tensor=spec.name)
        try:
            end = offset + spec.nbytes
        except ValueError as error:
            cursor.fail(str(error), offset=at, tensor=spec.name)
        tensors.append(spec.at(cursor.file, offset))
    if tensors:
        check_inside(tensors, end, cursor)
    last = end if tensors else cursor.position
    if not last <= cursor.end <= _align(end, alignment):
        cursor.fail(f"{cursor.end - last} bytes belong to no tensor", offset=last)
    return tuple(tensors)


def _align(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def check(specs: Sequence[TensorSpec]) -> None:
    """Check that the format can hold all of ``specs``; ``ModelMismatch`` lists those it cannot."""
    check_held("GGUF", specs, _unfit)


def _unfit(spec: TensorSpec) -> str | None:
    """Return the reason why the format cannot hold a tensor, or ``None``."""
    if not 0 < len(spec.name.encode()) <= MAX_NAME_BYTES:
        return f"a name of {len(spec.name.encode())} bytes; at most {MAX_NAME_BYTES}"
    if len(spec.shape) > MAX_DIMS:
        return f"{len(spec.shape)} dimensions; at most {MAX_DIMS}"
    if spec.encoding is None and TABLE[spec.dtype].gguf is None:
        return f"the format has no {spec.dtype.name}"
    try:
        _ = spec.nbytes
    except ValueError as error:
        return str(error)
    return None


def header(specs: Sequence[TensorSpec], metadata: Mapping[str, object]) -> tuple[bytes, list[int]]:
    """The bytes before the payloads, where each payload starts, and where the file ends.

    Args:
        specs: The tensors, in the order they are stored.
        metadata: Key/values; their Python or NumPy type decides the type in the file: ``str``,
            ``bool``, NumPy scalars, lists of ``str``, one-dimensional arrays. ``TypeError`` if it
            is another.
    """
    alignment = gguf_values.whole_number(metadata.get(ALIGNMENT_KEY), DEFAULT_ALIGNMENT)
    if alignment is None:
        raise TypeError(f"{ALIGNMENT_KEY} must be a numpy.uint32")
    counts = len(specs).to_bytes(8, "little") + len(metadata).to_bytes(8, "little")
    parts = [MAGIC, VERSION.to_bytes(4, "little"), counts]
    for key, value in metadata.items():
        parts += [gguf_values.pack_string(key), gguf_values.pack_value(key, value)]
    offsets = [0]
    for spec in specs:
        parts.append(_pack_description(spec, offsets[-1]))
        offsets.append(_align(offsets[-1] + spec.nbytes, alignment))
    raw = b"".join(parts)
    raw += bytes(_align(len(raw), alignment) - len(raw))
    return raw, [len(raw) + offset for offset in offsets]


def _pack_description(spec: TensorSpec, offset: int) -> bytes:
    code = spec.encoding.gguf_id if spec.encoding else TABLE[spec.dtype].gguf
    if code is None:
        raise ModelMismatch(f"GGUF has no {spec.dtype.name}", tensor=spec.name)
    return b"".join(
        [
            gguf_values.pack_string(spec.name),
            len(spec.shape).to_bytes(4, "little"),
            *(dim.to_bytes(8, "little") for dim in reversed(spec.shape)),
            code.to_bytes(4, "little"),
            offset.to_bytes(8, "little"),
        ]
    )


def write(
    path: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Payload],
    metadata: Mapping[str, object],
    progress: Progress | None = None,
    digest: Digest | None = None,
) -> None:
    """Write a GGUF file, checked as by :func:`check`; see :func:`header` and ``write_file``."""
    check(specs)
    write_file(path, header(specs, metadata), specs, arrays, progress, digest)
