"""safetensors: a JSON header and one packed buffer.

Layout: an unsigned 64-bit header length, the header, then the payloads without holes, in the order
of ``data_offsets``, to the end of the file. Rules and limits are those of the safetensors library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from maxtool.dtype import BY_SAFETENSORS, TABLE, DType
from maxtool.errors import InputError, MalformedFile, ModelMismatch
from maxtool.weights.formats.index import FileIndex
from maxtool.weights.formats.payload import repeated_names, write_payloads
from maxtool.weights.jsonfile import parse_object
from maxtool.weights.source import Cursor, map_file
from maxtool.weights.spec import TensorInfo, TensorSpec

MAX_HEADER_BYTES = 100_000_000
MAX_DIMS = 64
MAX_DIM = (1 << 63) - 1
HEADER_ALIGNMENT = 8
METADATA = "__metadata__"
DEFAULT_METADATA = {"format": "pt"}

# The library stores tensors in this order of types, each type in the order of names.
STORAGE_ORDER = (
    "uint64 int64 float64 float32 uint32 int32 bfloat16 float16 uint16 int16 float8_e5m2fnuz"
    " float8_e4m3fnuz float8_e8m0fnu float8_e4m3fn float8_e5m2 int8 uint8 bool"
)
_RANK = {DType(name): rank for rank, name in enumerate(STORAGE_ORDER.split())}


def read(path: Path) -> FileIndex:
    """Read and check the header of a safetensors file.

    Raises:
        MissingFile: If the file cannot be read.
        MalformedFile: If anything in it contradicts the format.
        InputError: If a tensor has an element type that is not supported.
    """
    cursor = Cursor(map_file(path), path)
    length = cursor.u64("the header length")
    if length > MAX_HEADER_BYTES:
        cursor.fail(f"a header of {length} bytes; at most {MAX_HEADER_BYTES}", offset=0)
    raw = cursor.take(length, "the header")
    if not raw.startswith(b"{"):
        cursor.fail("the header does not begin with '{'", offset=8)
    content = parse_object(raw, file=path, base=8)
    metadata = _metadata(content.pop(METADATA, {}), path)
    reader = _EntryReader(path, raw, cursor.position, cursor.remaining)
    tensors = sorted(
        (reader.read(name, entry) for name, entry in content.items()),
        key=lambda tensor: (tensor.offset, tensor.nbytes),
    )
    _check_packed(tensors, cursor)
    return FileIndex(tuple(tensors), metadata)


def _metadata(content: object, path: Path) -> dict[str, str]:
    if isinstance(content, dict) and all(isinstance(value, str) for value in content.values()):
        return content
    raise MalformedFile(f"{METADATA} is not an object of strings", file=path, offset=8)


class _EntryReader:
    """Turns header entries into ``TensorInfo``; what is wrong is reported with its place."""

    def __init__(self, path: Path, header: bytes, start: int, size: int) -> None:
        self.path = path
        self.header = header
        self.start = start
        self.size = size

    def read(self, name: str, entry: object) -> TensorInfo:
        if not isinstance(entry, dict):
            raise self._error(MalformedFile, name, "the entry is not an object")
        dtype, shape = self._dtype(name, entry), self._shape(name, entry)
        begin, end = self._offsets(name, entry)
        needed = math.prod(shape) * dtype.size_in_bytes
        if needed != end - begin:
            what = f"shape {list(shape)} of {entry['dtype']} needs {needed} bytes, not"
            raise self._error(MalformedFile, name, f"{what} {end - begin}")
        return TensorInfo(name, dtype, shape, None, self.path, self.start + begin)

    def _dtype(self, name: str, entry: Mapping[str, object]) -> DType:
        code = entry.get("dtype")
        if not isinstance(code, str):
            raise self._error(MalformedFile, name, "no dtype")
        if code not in BY_SAFETENSORS:
            raise self._error(InputError, name, f"the element type {code!r} is not supported")
        return BY_SAFETENSORS[code]

    def _shape(self, name: str, entry: Mapping[str, object]) -> tuple[int, ...]:
        shape = self._integers(name, entry, "shape", MAX_DIM)
        if len(shape) > MAX_DIMS:
            raise self._error(
                MalformedFile, name, f"{len(shape)} dimensions; at most {MAX_DIMS} are accepted"
            )
        return shape

    def _offsets(self, name: str, entry: Mapping[str, object]) -> tuple[int, ...]:
        offsets = self._integers(name, entry, "data_offsets", self.size)
        if len(offsets) != 2 or offsets[0] > offsets[1]:
            raise self._error(MalformedFile, name, "data_offsets are not a begin and an end")
        return offsets

    def _integers(
        self, name: str, entry: Mapping[str, object], key: str, most: int
    ) -> tuple[int, ...]:
        """A list of integers from 0 to ``most``; booleans and floats are none."""
        values = entry.get(key)
        if not isinstance(values, list) or any(type(value) is not int for value in values):
            raise self._error(MalformedFile, name, f"{key} is not a list of integers")
        if any(not 0 <= value <= most for value in values):
            raise self._error(MalformedFile, name, f"{key} holds a number outside 0 to {most}")
        return tuple(values)

    def _error(self, kind: type[InputError], name: str, what: str) -> InputError:
        place = self.header.find(json.dumps(name, ensure_ascii=False).encode(errors="replace"))
        offset = 8 + place if place >= 0 else None
        return kind(what, file=self.path, tensor=name, offset=offset)


def _check_packed(tensors: Sequence[TensorInfo], cursor: Cursor) -> None:
    """Check that payloads follow each other from the header to the end of the file."""
    expected = cursor.position
    for tensor in tensors:
        if tensor.offset != expected:
            kind = "overlaps the one before" if tensor.offset < expected else "leaves a hole before"
            cursor.fail(f"the payload {kind} it", offset=tensor.offset, tensor=tensor.name)
        expected += tensor.nbytes
    if expected != cursor.end:
        cursor.fail(f"{cursor.end - expected} bytes belong to no tensor", offset=expected)


def storage_order(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Specs in the order their payloads are stored: wide element types first, then by name."""
    return sorted(specs, key=lambda spec: (_RANK[spec.dtype], spec.name.encode()))


def check(specs: Sequence[TensorSpec]) -> None:
    """Check that the format can hold all of ``specs``.

    Raises:
        ModelMismatch: Listing every tensor it cannot hold.
    """
    problems = [
        f"{spec.name}: {spec.encoding.name} blocks cannot be stored in safetensors"
        for spec in specs
        if spec.encoding
    ]
    problems += repeated_names(specs)
    problems += [f"{METADATA}: no tensor can have this name" for s in specs if s.name == METADATA]
    if problems:
        raise ModelMismatch("safetensors cannot hold these tensors", problems=problems)


def header(specs: Sequence[TensorSpec], metadata: Mapping[str, object] | None = None) -> bytes:
    """The bytes before the payloads of ``specs``, which are stored in :func:`storage_order`.

    Args:
        specs: The tensors, in any order.
        metadata: Strings; ``{"format": "pt"}`` if nothing is given, as most readers expect.
    """
    content: dict[str, Any] = {METADATA: dict(sorted((metadata or DEFAULT_METADATA).items()))}
    offset = 0
    for spec in storage_order(specs):
        end = offset + spec.nbytes
        content[spec.name] = {
            "dtype": TABLE[spec.dtype].safetensors,
            "shape": list(spec.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    raw = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % HEADER_ALIGNMENT)
    return len(raw).to_bytes(8, "little") + raw


def write(
    path: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[NDArray[Any]],
    metadata: Mapping[str, object] | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write a safetensors file, one array at a time.

    Args:
        path: Where to write; use :func:`maxtool.files.staged`.
        specs: Every tensor, in the order of ``arrays``.
        arrays: The payloads; each is written to its place, so the order costs nothing.
        metadata: Strings for the header.
        progress: Told the bytes written since the last call.

    Raises:
        ModelMismatch: If the format cannot hold a spec, or an array contradicts its spec.
    """
    check(specs)
    start = header(specs, metadata)
    offsets: dict[str, int] = {}
    position = len(start)
    for spec in storage_order(specs):
        offsets[spec.name] = position
        position += spec.nbytes
    with path.open("wb") as stream:
        stream.write(start)
        write_payloads(stream, specs, [offsets[spec.name] for spec in specs], arrays, progress)
        stream.truncate(position)
