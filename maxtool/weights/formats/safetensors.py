"""safetensors: a JSON header and one packed buffer.

Layout: an unsigned 64-bit header length, the header, then the payloads without holes, in the order
of ``data_offsets``, to the end of the file. Rules and limits are those of the safetensors library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from maxtool.dtype import BY_SAFETENSORS, TABLE, DType
from maxtool.errors import InputError, MalformedFile
from maxtool.weights.cursor import Cursor
from maxtool.weights.formats.file_index import FileIndex, check_inside
from maxtool.weights.formats.payload import Digest, Payload, Progress, check_held, write_file
from maxtool.weights.jsonfile import MAX_JSON_MEMORY, parse_object, uncollected
from maxtool.weights.tensor_info import TensorInfo, TensorSpec

MAX_HEADER_BYTES = 100_000_000
# The largest published models have 140000 tensors in all, in dozens of files.
MAX_TENSORS = 100_000
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


def read_header(cursor: Cursor) -> FileIndex:
    """Read and check a header; the payloads need not be at hand."""
    length = cursor.u64("the header length")
    if length > MAX_HEADER_BYTES:
        cursor.fail(f"a header of {length} bytes; at most {MAX_HEADER_BYTES}", offset=0)
    raw = cursor.take(length, "the header")
    content = _parse(raw, cursor)
    metadata = _metadata(content.pop(METADATA, {}), cursor.file)
    reader = _EntryReader(cursor, raw)
    with uncollected():
        placed = [reader.read(name, entry) for name, entry in content.items()]
    content.clear()
    placed.sort(key=itemgetter(1, 2))
    tensors = tuple(tensor for tensor, *_ in placed)
    check_inside(tensors, max((end for *_, end in placed), default=0), cursor)
    _check_packed(placed, cursor)
    return FileIndex(tensors, metadata)


def _parse(raw: bytes, cursor: Cursor) -> dict[str, object]:
    """The header's JSON, well-formed entries already as :class:`_Entry`."""
    if not raw.startswith(b"{"):
        cursor.fail("the header does not begin with '{'", offset=8)
    count = sum(map(raw.count, ENTRY_STARTS))
    if count > MAX_TENSORS:
        cursor.fail(f"{count} tensors; at most {MAX_TENSORS} are accepted", offset=8)
    memory = MAX_JSON_MEMORY + count * ENTRY_COST
    return parse_object(raw, file=cursor.file, base=8, memory=memory, compact=_compact())


# How an entry begins as every known writer puts it; no JSON string can contain this.
ENTRY_STARTS = tuple(f'{{"{key}"'.encode() for key in ("dtype", "shape", "data_offsets"))
# What the JSON of an entry costs at least by the table COSTS, and what is not kept of it.
ENTRY_COST = 1400


_INTEGERS = frozenset({int})
# Element types by their code, and bytes of an element.
_SIZED = {code: (dtype, dtype.size_in_bytes) for code, dtype in BY_SAFETENSORS.items()}

# A tensor, and where its payload begins and ends in the file.
Placed = tuple[TensorInfo, int, int]


class _Entry(NamedTuple):
    """An entry's fields, not checked yet; tuples hold integers."""

    dtype: object
    shape: object
    data_offsets: object


def _compact() -> Callable[[dict[str, object]], object]:
    """Turn entries into ``_Entry``, a third of the size, while the header is parsed."""
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}

    def entry(content: dict[str, object]) -> object:
        shape, offsets = content.get("shape"), content.get("data_offsets")
        if len(content) != 3 or not isinstance(shape, list) or not isinstance(offsets, list):
            return content
        if not _are_integers(shape) or not _are_integers(offsets):
            return content
        dims = tuple(shape)
        return _Entry(content.get("dtype"), shapes.setdefault(dims, dims), tuple(offsets))

    return entry


def _are_integers(values: Iterable[object]) -> bool:
    """Return whether all are integers; booleans and floats, which may equal them, are none."""
    return _INTEGERS.issuperset(map(type, values))


def _metadata(content: object, file: Path) -> dict[str, str]:
    if isinstance(content, dict) and all(isinstance(value, str) for value in content.values()):
        return content
    raise MalformedFile(f"{METADATA} is not an object of strings", file=file, offset=8)


class _EntryReader:
    """Turns header entries into ``TensorInfo``; what is wrong is reported with its place."""

    def __init__(self, cursor: Cursor, header: bytes) -> None:
        self.cursor = cursor
        self.header = header
        self.start = cursor.position

    def read(self, name: str, entry: object) -> Placed:
        if isinstance(entry, dict):
            entry = _Entry(entry.get("dtype"), entry.get("shape"), entry.get("data_offsets"))
        if not isinstance(entry, _Entry):
            raise self._error(MalformedFile, name, "the entry is not an object")
        dtype, size = self._dtype(name, entry.dtype)
        shape = self._integers(name, entry.shape, "shape")
        if len(shape) > MAX_DIMS:
            what = f"{len(shape)} dimensions; at most {MAX_DIMS} are accepted"
            raise self._error(MalformedFile, name, what)
        offsets = self._integers(name, entry.data_offsets, "data_offsets")
        if len(offsets) != 2 or offsets[0] > offsets[1]:
            raise self._error(MalformedFile, name, "data_offsets are not a begin and an end")
        needed, held = math.prod(shape) * size, offsets[1] - offsets[0]
        if needed != held:
            what = f"shape {list(shape)} of {entry.dtype} needs {needed} bytes, not {held}"
            raise self._error(MalformedFile, name, what)
        start = self.start + offsets[0]
        tensor = TensorInfo(name, dtype, shape, None, self.cursor.file, start)
        return tensor, start, start + held

    def _dtype(self, name: str, code: object) -> tuple[DType, int]:
        if not isinstance(code, str):
            raise self._error(MalformedFile, name, "no dtype")
        if code not in _SIZED:
            raise self._error(InputError, name, f"the element type {code!r} is not supported")
        return _SIZED[code]

    def _integers(self, name: str, values: object, key: str) -> tuple[int, ...]:
        if type(values) is not tuple:  # an ``_Entry`` is one that holds anything
            if not isinstance(values, list) or not _are_integers(values):
                raise self._error(MalformedFile, name, f"{key} is not a list of integers")
            values = tuple(values)
        if values and (min(values) < 0 or max(values) > MAX_DIM):
            what = f"{key} holds a number outside 0 to {MAX_DIM}"
            raise self._error(MalformedFile, name, what)
        return values

    def _error(self, type_: type[InputError], name: str, what: str) -> InputError:
        written = json.dumps(name, ensure_ascii=False).encode(errors="replace")
        place = self.header.find(written)
        offset = self.start - len(self.header) + place if place >= 0 else None
        return type_(what, file=self.cursor.file, tensor=name, offset=offset)


def _check_packed(placed: Sequence[Placed], cursor: Cursor) -> None:
    """Check that payloads follow each other from the header to the end of the file."""
    expected = cursor.position
    for tensor, begin, end in placed:
        if begin != expected:
            problem = "overlaps the one before" if begin < expected else "leaves a hole before"
            cursor.fail(f"the payload {problem} it", offset=begin, tensor=tensor.name)
        expected = end
    if expected != cursor.end:
        cursor.fail(f"{cursor.end - expected} bytes belong to no tensor", offset=expected)


def storage_order(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Specs in the order their payloads are stored: wide element types first, then by name."""
    return sorted(specs, key=lambda spec: (_RANK[spec.dtype], spec.name.encode()))


def check(specs: Sequence[TensorSpec]) -> None:
    """Check that the format can hold all of ``specs``; ``ModelMismatch`` lists those it cannot."""
    check_held("safetensors", specs, _unfit, reserved=METADATA)


def _unfit(spec: TensorSpec) -> str | None:
    """Return the reason why the format cannot hold a tensor, or ``None``."""
    return f"{spec.encoding.name} blocks cannot be stored in safetensors" if spec.encoding else None


def header(
    specs: Sequence[TensorSpec], metadata: Mapping[str, object] | None = None
) -> tuple[bytes, list[int]]:
    """The bytes before the payloads, where each payload starts, and where the file ends.

    Args:
        specs: The tensors, in any order; they are stored in :func:`storage_order`.
        metadata: Strings; ``{"format": "pt"}`` if it is None, as most readers expect.
    """
    content: dict[str, Any] = {
        METADATA: dict(sorted((DEFAULT_METADATA if metadata is None else metadata).items()))
    }
    begins: dict[str, int] = {}
    end = 0
    for spec in storage_order(specs):
        begin = begins[spec.name] = end
        end += spec.nbytes
        content[spec.name] = {
            "dtype": TABLE[spec.dtype].safetensors,
            "shape": list(spec.shape),
            "data_offsets": [begin, end],
        }
    raw = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % HEADER_ALIGNMENT)
    start = 8 + len(raw)
    offsets = [start + begins[spec.name] for spec in specs]
    return len(raw).to_bytes(8, "little") + raw, [*offsets, start + end]


def write(
    path: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Payload],
    metadata: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    digest: Digest | None = None,
) -> None:
    """Write a safetensors file, checked as by :func:`check`; see :func:`header`, ``write_file``."""
    check(specs)
    write_file(path, header(specs, metadata), specs, arrays, progress, digest)
