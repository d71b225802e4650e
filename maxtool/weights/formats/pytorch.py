"""PyTorch: a zip archive of a pickle that describes tensors, and of their storages.

Read: what ``torch.save`` writes since 1.6. The archive holds one folder with ``data.pkl``, one
entry ``data/KEY`` per storage and, in recent versions, ``byteorder``. The pickle is read without
running it (:mod:`maxtool.weights.formats.pickled`); torch is not needed. Containers of tensors
become dotted names, plain values beside them metadata.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import InputError, MalformedFile
from maxtool.weights.formats import pickled
from maxtool.weights.formats.index import FileIndex
from maxtool.weights.formats.pickle_machine import Arguments, Call, Global, Unfit, Unsupported
from maxtool.weights.formats.zipped import Entry, read_entries
from maxtool.weights.names import Names
from maxtool.weights.source import Bytes, Cursor, map_file
from maxtool.weights.spec import TensorInfo

PICKLE = "data.pkl"
MAX_DIMS = 64
# Tensors, plain values and containers; how deep these lie in one another; and their names.
MAX_VALUES = 1 << 17
MAX_DEPTH = 64
MAX_NAME_CHARACTERS = 4096
# A tensor made by expand() has more elements than its storage; at most this many bytes of them.
MAX_EXPANDED_BYTES = 1 << 26

# torch/storage.py's classes, and torch's dtypes; complex and quantized ones have no DType here.
STORAGES: Mapping[str, DType | None] = {
    "BoolStorage": DType.bool,
    "ByteStorage": DType.uint8,
    "CharStorage": DType.int8,
    "ShortStorage": DType.int16,
    "IntStorage": DType.int32,
    "LongStorage": DType.int64,
    "HalfStorage": DType.float16,
    "BFloat16Storage": DType.bfloat16,
    "FloatStorage": DType.float32,
    "DoubleStorage": DType.float64,
    "ComplexFloatStorage": None,
    "ComplexDoubleStorage": None,
    "QUInt8Storage": None,
    "QInt8Storage": None,
    "QInt32Storage": None,
    "QUInt4x2Storage": None,
    "QUInt2x4Storage": None,
}
UNTYPED = Global("torch.storage", "UntypedStorage")
DTYPES = {Global("torch", dtype.value): dtype for dtype in DType}
OTHER_DTYPES = ("complex32", "complex64", "complex128", "float4_e2m1fn_x2")


@dataclass(frozen=True, slots=True)
class _Storage:
    """An entry of the archive as a run of elements; ``dtype`` is None where tensors say it."""

    entry: Entry
    dtype: DType | None


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor over a storage. Offset and strides count elements."""

    entry: Entry
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def is_archive(entries: Iterable[str]) -> bool:
    """Whether a zip archive with these entries is one of PyTorch."""
    return any(name.endswith(f"/{PICKLE}") for name in entries)


def read(path: Path) -> FileIndex:
    """Read and check the description of a PyTorch checkpoint.

    Raises:
        MissingFile: If the file cannot be read.
        MalformedFile: If anything in it contradicts the format.
        InputError: If it is big-endian, compressed, TorchScript, has types that are not supported,
            or its pickle wants to import anything but tensors.
    """
    data = map_file(path)
    entries = _in_folder(read_entries(data, path), path)
    _check_byte_order(data, entries, path)
    pickle = _stored(entries, PICKLE, path)
    cursor = Cursor(data, path)
    cursor.stay_within(pickle.start, pickle.start + pickle.size)
    content = pickled.read(cursor, CALLS, partial(_storage, entries, path))
    flat = _Flattener(path)
    flat.add(content)
    return FileIndex(tuple(flat.tensors), flat.metadata)


def _in_folder(entries: Mapping[str, Entry], path: Path) -> dict[str, Entry]:
    """The entries by their names below the archive's one folder."""
    pickles = [name for name in entries if name.count("/") == 1 and name.endswith(f"/{PICKLE}")]
    if len(pickles) != 1:
        what = f"{len(pickles)} entries are a {PICKLE} in a folder; a PyTorch checkpoint has one"
        raise MalformedFile(what, file=path)
    folder = pickles[0].removesuffix(PICKLE)
    inside = {
        name.removeprefix(folder): entry
        for name, entry in entries.items()
        if name.startswith(folder)
    }
    if "constants.pkl" in inside or any(name.startswith("code/") for name in inside):
        raise InputError(
            "a TorchScript archive, which holds a program; only checkpoints are read",
            file=path,
            hint="save its state dict with torch.save, or as safetensors",
        )
    return inside


def _stored(entries: Mapping[str, Entry], name: str, path: Path) -> Entry:
    entry = entries.get(name)
    if entry is None:
        raise MalformedFile(f"the archive has no entry {name!r}", file=path)
    if entry.deflated:
        raise InputError(
            f"the entry {name!r} is compressed, as PyTorch never does",
            file=path,
            offset=entry.start,
            hint="pack the archive again without compression",
        )
    return entry


def _check_byte_order(data: Bytes, entries: Mapping[str, Entry], path: Path) -> None:
    if "byteorder" not in entries:
        return  # before torch 2.1
    entry = _stored(entries, "byteorder", path)
    order = data[entry.start : entry.start + min(entry.size, 16)]
    if order == b"big":
        raise InputError("a big-endian checkpoint; only little-endian ones are read", file=path)
    if order != b"little":
        what = f"the byte order is {order.decode(errors='replace')!r}, not 'little'"
        raise MalformedFile(what, file=path, offset=entry.start)


# --- what the pickle's names stand for -----------------------------------------------------------


def _storage(entries: Mapping[str, Entry], path: Path, wanted: Arguments) -> _Storage:
    """A persistent id: a word, the type of the elements, the entry, a device and a count."""
    if len(wanted) != 5 or wanted[0] != "storage":
        raise Unfit("a persistent id that is no storage")
    kind, key, count = wanted[1], wanted[2], wanted[4]
    if not isinstance(kind, Global) or type(key) is not str or type(count) is not int:
        raise Unfit("a persistent id that is no storage")
    dtype = None if kind == UNTYPED else _supported(STORAGES.get(kind.name), kind)
    entry = _stored(entries, f"data/{key}", path)
    nbytes = count * (1 if dtype is None else dtype.size_in_bytes)
    if nbytes != entry.size:
        raise Unfit(f"a storage of {nbytes} bytes, for which the archive has {entry.size}")
    return _Storage(entry, dtype)


def _supported(dtype: DType | None, kind: Global) -> DType:
    if dtype is None:
        raise Unsupported(f"the element type {str(kind)!r} is not supported")
    return dtype


def _tensor(arguments: Arguments) -> _Tensor:
    """``_rebuild_tensor_v2``: storage, offset, size, stride, and what gradients need."""
    storage, *place = arguments[:4]
    if not isinstance(storage, _Storage) or storage.dtype is None:
        raise Unfit("a tensor without a storage")
    return _placed(storage.entry, storage.dtype, place)


def _typed_tensor(arguments: Arguments) -> _Tensor:
    """``_rebuild_tensor_v3``: the same, over bytes, with the dtype."""
    storage, *place = arguments[:4]
    kind = arguments[6] if len(arguments) > 6 else None
    if not isinstance(storage, _Storage) or not isinstance(kind, Global):
        raise Unfit("a tensor without a storage or a dtype")
    return _placed(storage.entry, _supported(DTYPES.get(kind), kind), place)


def _placed(entry: Entry, dtype: DType, place: list[Any]) -> _Tensor:
    """A tensor whose elements are known to lie in its storage."""
    if len(place) != 3:
        raise Unfit("a tensor without offset, size and stride")
    offset, shape, strides = place
    _check_whole([offset])
    for numbers in (shape, strides):
        if not isinstance(numbers, tuple) or len(numbers) > MAX_DIMS:
            raise Unfit(f"a size or stride that is no tuple of at most {MAX_DIMS} numbers")
        _check_whole(numbers)
    if len(shape) != len(strides):
        raise Unfit(f"a tensor with {len(shape)} sizes and {len(strides)} strides")
    held = entry.size // dtype.size_in_bytes
    last = offset + sum((dim - 1) * step for dim, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= held:
        raise Unfit(f"a tensor that needs element {last} of a storage of {held}")
    if math.prod(shape) * dtype.size_in_bytes > max(entry.size, MAX_EXPANDED_BYTES):
        raise Unfit("a tensor expanded far beyond its storage")
    return _Tensor(entry, dtype, offset, shape, strides)


def _check_whole(numbers: Iterable[object]) -> None:
    if any(type(number) is not int or number < 0 for number in numbers):
        raise Unfit("a size, stride or offset that is no whole number")


def _first(arguments: Arguments) -> object:
    if not arguments:
        raise Unfit("a call without arguments")
    return arguments[0]


def _size(arguments: Arguments) -> object:
    if len(arguments) != 1 or not isinstance(arguments[0], tuple):
        raise Unfit("a torch.Size of what is no tuple")
    return arguments[0]


def _with_attributes(arguments: Arguments) -> object:
    """``_rebuild_from_type_v2``: a function, a class, the function's arguments, attributes."""
    function, kind, inner, _ = arguments
    call = CALLS.get(function) if isinstance(function, Global) else None
    if call is _with_attributes or kind not in (Global("torch", "Tensor"), PARAMETER):
        raise Unfit("a tensor of another class")
    if call is None or not isinstance(inner, tuple):
        raise Unfit("a tensor without arguments")
    return call(inner)


PARAMETER = Global("torch.nn.parameter", "Parameter")
CALLS: dict[Global, Call | None] = {
    Global("torch._utils", "_rebuild_tensor"): _tensor,
    Global("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Global("torch._utils", "_rebuild_tensor_v3"): _typed_tensor,
    Global("torch._utils", "_rebuild_parameter"): _first,
    Global("torch._utils", "_rebuild_parameter_with_state"): _first,
    Global("torch._tensor", "_rebuild_from_type_v2"): _with_attributes,
    Global("torch", "Size"): _size,
    Global("torch", "device"): _first,
    Global("torch", "Tensor"): None,
    PARAMETER: None,
    UNTYPED: None,
    **{Global("torch", name): None for name in STORAGES},
    **dict.fromkeys(DTYPES),
    **{Global("torch", name): None for name in OTHER_DTYPES},
}


# --- names ---------------------------------------------------------------------------------------


class _Flattener:
    """Turns containers in one another into dotted names.

    A pickle can put one container in many places, and in itself: depth and count are bounded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = Names(path)
        self.tensors: list[TensorInfo] = []
        self.metadata: dict[str, object] = {}
        self.left = MAX_VALUES

    def add(self, value: object, prefix: str = "", name: str | None = None, depth: int = 0) -> None:
        """Add everything at and below ``value``, whose whole name is ``prefix`` and ``name``."""
        self.left -= _cost(value)
        if self.left < 0 or depth > MAX_DEPTH:
            what = f"more than {MAX_VALUES} values, or containers nested deeper than {MAX_DEPTH}"
            raise MalformedFile(what, file=self.path)
        items = _items(value)
        if items is None:
            whole = self.names.add(prefix, self.path.stem if name is None else name)
            self._add_leaf(whole, value)
            return
        below = prefix if name is None else f"{self._bounded(prefix, name)}."
        for key, item in items:
            self.add(item, below, str(key), depth + 1)

    def _bounded(self, prefix: str, name: str) -> str:
        if len(prefix) + len(name) > MAX_NAME_CHARACTERS:
            what = f"a name longer than {MAX_NAME_CHARACTERS} characters"
            raise MalformedFile(what, file=self.path)
        return prefix + name

    def _add_leaf(self, name: str, value: object) -> None:
        if isinstance(value, _Tensor):
            self.tensors.append(_described(name, value, self.path))
        elif isinstance(value, _Storage):
            what = "a bare storage; only tensors are read"
            raise InputError(what, file=self.path, tensor=name, offset=value.entry.start)
        else:
            self.metadata[name] = _plain(value)


def _cost(value: object) -> int:
    """What a value counts towards ``MAX_VALUES``, wherever it is repeated."""
    items = value if isinstance(value, list | tuple) else ()
    text = sum(len(item) for item in (value, *items) if isinstance(item, str | bytes))
    return 1 + len(items) + text // 64


def _items(value: object) -> Iterable[tuple[str | int, object]] | None:
    """Key and value of a container; None for anything else, lists of plain numbers included."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple) and not all(type(item) in _SCALARS for item in value):
        return enumerate(value)
    return None


_SCALARS = {int, float, bool, str, type(None)}


def _plain(value: object) -> object:
    """A value for the metadata; bytes as the text that protocol 2 makes of them."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value) if isinstance(value, Global) else value


def _described(name: str, tensor: _Tensor, path: Path) -> TensorInfo:
    offset = tensor.entry.start + tensor.offset * tensor.dtype.size_in_bytes
    shape, strides = tensor.shape, tensor.strides
    unpack = None if _packed(shape, strides) else partial(_gather, tensor)
    return TensorInfo(name, tensor.dtype, shape, None, path, offset, unpack)


def _packed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements follow each other in the order of the shape."""
    expected = 1
    for dim, step in zip(reversed(shape), reversed(strides), strict=True):
        if dim > 1 and step != expected:
            return not math.prod(shape)
        expected *= dim
    return True


def _gather(tensor: _Tensor, data: Bytes) -> NDArray[Any]:
    """The elements of a tensor with strides, in the order of its shape."""
    dtype = tensor.dtype.to_numpy()
    places = zip(tensor.shape, tensor.strides, strict=True)
    steps = tuple(step * dtype.itemsize if dim > 1 else 0 for dim, step in places)
    start = tensor.entry.start + tensor.offset * dtype.itemsize
    return np.ascontiguousarray(np.ndarray(tensor.shape, dtype, data, start, steps))
