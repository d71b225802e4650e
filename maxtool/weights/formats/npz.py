"""NumPy's files: one array (.npy), or a zip archive of them (.npz).

Layout: numpy.lib.format's documentation. The header is a Python literal, of which what NumPy
writes is understood; nothing is evaluated. Pickled objects are never read.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import InputError
from maxtool.weights.formats.file_index import FileIndex
from maxtool.weights.formats.zip_archive import ZipEntry, read_beginning, read_entries, read_entry
from maxtool.weights.names import first_of
from maxtool.weights.source_file import SourceFile, cut_off
from maxtool.weights.tensor_info import TensorInfo, TensorSpec

MAGIC = b"\x93NUMPY"
SUFFIX = ".npy"
# The lengths of the header by version; NumPy, too, accepts headers of up to 10000 bytes.
LENGTHS = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}
MAX_HEADER_BYTES = 10_000
MAX_DIMS = 64
MAX_DIM = (1 << 63) - 1

_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float"}
_TYPE = re.compile(r"[<>|]([biuf])([1248])")
_STRINGS = re.compile(r"[<>|][SUa]\d+")
_ITEMS = {
    "descr": r"'(?P<descr>[^']*)'",
    "fortran_order": r"(?P<fortran_order>True|False)",
    "shape": r"\((?P<shape>[0-9L, ]*)\)",
}
# The three items in NumPy's order, or any other order that others write.
_ITEM = re.compile("|".join(rf"'{key}': *{value}" for key, value in _ITEMS.items()))
_COMMA = re.compile(r" *, *")
_DIM = r"\d{1,19}L?"  # Python 2 wrote the L
_DIMS = re.compile(rf"|{_DIM}, *|{_DIM}(?:, *{_DIM})+(?:, *)?")


@dataclass(frozen=True, slots=True)
class _Header:
    """One array as its header describes it.

    Attributes:
        dtype: NumPy's name of the type.
        columns: Whether the first dimension is the fastest.
        shape: Slowest dimension first, whatever the order.
        end: Bytes from the start of the array's file to its elements.
    """

    dtype: str
    columns: bool
    shape: tuple[int, ...]
    end: int

    @property
    def simple(self) -> bool:
        """Return whether the elements lie in the file as they do in memory."""
        return not self.dtype.startswith(">") and (not self.columns or len(self.shape) < 2)


class _HeaderLocation(NamedTuple):
    """Location of a header, for errors."""

    file: SourceFile
    name: str
    offset: int

    def fail(self, what: str, hint: str | None = None) -> NoReturn:
        self.file.fail(what, self.offset, self.name, hint)

    def unsupported(self, what: str, hint: str | None = None) -> InputError:
        path = self.file.path
        return InputError(what, file=path, tensor=self.name, offset=self.offset, hint=hint)


def is_archive(entries: Iterable[str]) -> bool:
    """Return whether a zip archive with these entries is one of NumPy."""
    return all(name.endswith(SUFFIX) for name in entries)


def read_array(file: SourceFile) -> FileIndex:
    """Read and check the header of an .npy file; its tensor is named as the file is."""
    location = _HeaderLocation(file, file.path.stem, 0)
    header = _parse(file.read(0, min(file.size, MAX_HEADER_BYTES + 12)), location)
    info = _describe(header, location, file.size, 0, None)
    return FileIndex((info,), {}) if info else FileIndex((), {}, _notes([location.name]))


def read_archive(file: SourceFile) -> FileIndex:
    """Read and check the headers of the arrays in an .npz file."""
    tensors, strings = [], []
    for entry in read_entries(file).values():
        location = _HeaderLocation(file, entry.name.removesuffix(SUFFIX), entry.start)
        raw = read_beginning(file, entry, MAX_HEADER_BYTES + 12)
        info = _describe(_parse(raw, location), location, entry.size, entry.start, entry)
        if info is None:
            strings.append(location.name)
        else:
            tensors.append(info)
    return FileIndex(tuple(tensors), {}, _notes(strings))


def _notes(strings: list[str]) -> tuple[str, ...]:
    return (f"arrays of text were left out: {first_of(strings)}",) if strings else ()


def _parse(raw: bytes, location: _HeaderLocation) -> _Header:
    """The header at the beginning of an array's bytes."""
    if raw[:6] != MAGIC:
        location.fail("not an array: it does not begin as NumPy's files do")
    length = LENGTHS.get(raw[6]) if len(raw) >= 8 else None
    if length is None or raw[7]:
        location.fail(f"the array's format version {list(raw[6:8])} is unknown")
    start = 8 + length.size
    if len(raw) < start:
        location.fail("the array's header ends early")
    end = start + length.unpack_from(raw, 8)[0]
    if end - start > MAX_HEADER_BYTES:
        location.fail(f"a header of {end - start} bytes; at most {MAX_HEADER_BYTES}")
    if end > len(raw):
        location.fail("the array's header ends early")
    return _parse_text(raw[start:end].decode("latin-1"), end, location)


def _parse_text(text: str, end: int, location: _HeaderLocation) -> _Header:
    literal = text.rstrip(" \n")
    braced = literal.startswith("{") and literal.endswith("}")
    items = _items(literal[1:-1].strip(" ")) if braced else {}
    if items.keys() != _ITEMS.keys():
        if re.search(r"'descr': *\[", text):
            raise location.unsupported("an array of records is not supported")
        location.fail("the array's header is not one that NumPy writes")
    if not _DIMS.fullmatch(items["shape"]):
        location.fail(f"the array's shape ({items['shape']}) is not one")
    shape = tuple(int(dim) for dim in re.findall(r"\d+", items["shape"]))
    if len(shape) > MAX_DIMS or any(dim > MAX_DIM for dim in shape):
        location.fail(f"more than {MAX_DIMS} dimensions, or one beyond {MAX_DIM}")
    return _Header(items["descr"], items["fortran_order"] == "True", shape, end)


def _items(text: str) -> dict[str, str]:
    """The items of the literal by key; empty if there is anything else, or a key twice."""
    items: dict[str, str] = {}
    position = 0
    while match := _ITEM.match(text, position):
        key = match.lastgroup or ""
        if key in items:
            return {}
        items[key] = match[key]
        comma = _COMMA.match(text, match.end())
        position = comma.end() if comma else match.end()
        if not comma:
            break
    return items if position == len(text) else {}


def _describe(
    header: _Header, location: _HeaderLocation, size: int, start: int, entry: ZipEntry | None
) -> TensorInfo | None:
    """The tensor in ``size`` bytes, its header included, from ``start`` on; None if it is text."""
    if _STRINGS.fullmatch(header.dtype):
        return None
    dtype = _dtype(header.dtype, location)
    needed = math.prod(header.shape) * dtype.size_in_bytes
    if needed != size - header.end:
        what = f"shape {list(header.shape)} of {header.dtype} needs {needed} bytes, and there are"
        held = size - header.end
        hint = cut_off(needed - held) if entry is None and needed > held else None
        location.fail(f"{what} {held}", hint)
    deflated = entry if entry is not None and entry.deflated else None
    simple = header.simple and deflated is None
    unpack = None if simple else partial(_unpack, header, start, deflated)
    offset = start + (header.end if deflated is None else 0)
    return TensorSpec(location.name, dtype, header.shape).at(location.file.path, offset, unpack)


def _dtype(text: str, location: _HeaderLocation) -> DType:
    if "O" in text:
        what = "an array of Python objects, which is a pickle; pickles are never read"
        raise location.unsupported(what, "save an array of numbers")
    match = _TYPE.fullmatch(text)
    name = f"{_KINDS[match[1]]}{int(match[2]) * 8}" if match else ""
    name = "bool" if name == "bool8" else name
    if name in DType.__members__:
        return DType(name)
    hint = "NumPy's files cannot say bfloat16 or float8: save as float32, or as safetensors"
    what = f"the element type {text!r} is not supported"
    raise location.unsupported(what, hint if re.fullmatch(r"[<>|]V[12]", text) else None)


def _unpack(
    header: _Header, start: int, deflated: ZipEntry | None, file: SourceFile
) -> NDArray[Any]:
    """The elements in the order of the shape and of the machine's bytes."""
    stored = np.dtype(header.dtype)
    count = math.prod(header.shape)
    if deflated is None:
        flat = file.array(start + header.end, count * stored.itemsize).view(stored)
    else:
        flat = np.frombuffer(read_entry(file, deflated), stored, count, header.end)
    array = flat.reshape(header.shape, order="F" if header.columns else "C")
    return np.ascontiguousarray(array, stored.newbyteorder("="))
