"""Objects of a PyTorch pickle: storages, and tensors over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.formats.pickle_machine import (
    Arguments,
    BadArguments,
    Call,
    ImportedName,
    Unsupported,
)
from maxtool.weights.formats.zip_archive import ZipEntry
from maxtool.weights.source_file import SourceFile
from maxtool.weights.tensor_info import TensorInfo

MAX_DIMS = 64
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
    **dict.fromkeys(["ComplexFloatStorage", "ComplexDoubleStorage", "QUInt8Storage"]),
    **dict.fromkeys(["QInt8Storage", "QInt32Storage", "QUInt4x2Storage", "QUInt2x4Storage"]),
}
UNTYPED = ImportedName("torch.storage", "UntypedStorage")
DTYPES = {ImportedName("torch", dtype.value): dtype for dtype in DType}
OTHER_DTYPES = ("complex32", "complex64", "complex128", "float4_e2m1fn_x2")


@dataclass(frozen=True, slots=True)
class Storage:
    """An entry of the archive as a run of elements; ``dtype`` is None where tensors say it."""

    entry: ZipEntry
    dtype: DType | None


@dataclass(frozen=True, slots=True)
class StridedTensor:
    """A tensor over a storage. Offset and strides count elements."""

    entry: ZipEntry
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def described(self, name: str, path: Path) -> TensorInfo:
        """Return its description under a name, in the archive at ``path``."""
        offset = self.entry.start + self.offset * self.dtype.size_in_bytes
        unpack = None if _packed(self.shape, self.strides) else partial(_gather, self)
        return TensorInfo(name, self.dtype, self.shape, None, path, offset, unpack)


def find_storage(find: Callable[[str], ZipEntry], wanted: Arguments) -> Storage:
    """Return the storage of a persistent id.

    That is a word, the type of the elements, the key of the entry, a device and a count. ``find``
    gives the entry of the archive that has a name.
    """
    if len(wanted) != 5 or wanted[0] != "storage":
        raise BadArguments("a persistent id that is not a storage")
    tag, key, count = wanted[1], wanted[2], wanted[4]
    if not isinstance(tag, ImportedName) or type(key) is not str or type(count) is not int:
        raise BadArguments("a persistent id that is not a storage")
    dtype = None if tag == UNTYPED else _supported(STORAGES.get(tag.name), tag)
    entry = find(f"data/{key}")
    nbytes = count * (1 if dtype is None else dtype.size_in_bytes)
    if nbytes != entry.size:
        raise BadArguments(f"a storage of {nbytes} bytes, for which the archive has {entry.size}")
    return Storage(entry, dtype)


def _supported(dtype: DType | None, imported_name: ImportedName) -> DType:
    if dtype is None:
        raise Unsupported(f"the element type {str(imported_name)!r} is not supported")
    return dtype


def _tensor(arguments: Arguments) -> StridedTensor:
    """``_rebuild_tensor_v2``: storage, offset, size, stride, and what gradients need."""
    storage, *geometry = arguments[:4]
    if not isinstance(storage, Storage) or storage.dtype is None:
        raise BadArguments("a tensor without a storage")
    return _placed(storage.entry, storage.dtype, geometry)


def _typed_tensor(arguments: Arguments) -> StridedTensor:
    """``_rebuild_tensor_v3``: the same, over bytes, with the dtype."""
    storage, *geometry = arguments[:4]
    type_argument = arguments[6] if len(arguments) > 6 else None
    if not isinstance(storage, Storage) or not isinstance(type_argument, ImportedName):
        raise BadArguments("a tensor without a storage or a dtype")
    return _placed(storage.entry, _supported(DTYPES.get(type_argument), type_argument), geometry)


def _placed(entry: ZipEntry, dtype: DType, geometry: list[Any]) -> StridedTensor:
    """A tensor whose elements are known to lie in its storage."""
    if len(geometry) != 3:
        raise BadArguments("a tensor without offset, size and stride")
    offset, shape, strides = geometry
    _check_whole([offset])
    for numbers in (shape, strides):
        if not isinstance(numbers, tuple) or len(numbers) > MAX_DIMS:
            what = f"a size or stride that is not a tuple of at most {MAX_DIMS} numbers"
            raise BadArguments(what)
        _check_whole(numbers)
    if len(shape) != len(strides):
        raise BadArguments(f"a tensor with {len(shape)} sizes and {len(strides)} strides")
    held = entry.size // dtype.size_in_bytes
    last = offset + sum((dim - 1) * step for dim, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= held:
        raise BadArguments(f"a tensor that needs element {last} of a storage of {held}")
    if math.prod(shape) * dtype.size_in_bytes > max(entry.size, MAX_EXPANDED_BYTES):
        raise BadArguments("a tensor expanded far beyond its storage")
    return StridedTensor(entry, dtype, offset, shape, strides)


def _check_whole(numbers: Iterable[object]) -> None:
    if any(type(number) is not int or number < 0 for number in numbers):
        raise BadArguments("a size, stride or offset that is not a whole number")


def _first(arguments: Arguments) -> object:
    if not arguments:
        raise BadArguments("a call without arguments")
    return arguments[0]


def _size(arguments: Arguments) -> object:
    if len(arguments) != 1 or not isinstance(arguments[0], tuple):
        raise BadArguments("a torch.Size of a value that is not a tuple")
    return arguments[0]


def _with_attributes(arguments: Arguments) -> object:
    """``_rebuild_from_type_v2``: a function, a class, the function's arguments, attributes."""
    function, class_name, inner, _ = arguments
    call = CALLS.get(function) if isinstance(function, ImportedName) else None
    if call is _with_attributes or class_name not in (ImportedName("torch", "Tensor"), PARAMETER):
        raise BadArguments("a tensor of another class")
    if call is None or not isinstance(inner, tuple):
        raise BadArguments("a tensor without arguments")
    return call(inner)


PARAMETER = ImportedName("torch.nn.parameter", "Parameter")
CALLS: dict[ImportedName, Call | None] = {
    ImportedName("torch._utils", "_rebuild_tensor"): _tensor,
    ImportedName("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ImportedName("torch._utils", "_rebuild_tensor_v3"): _typed_tensor,
    ImportedName("torch._utils", "_rebuild_parameter"): _first,
    ImportedName("torch._utils", "_rebuild_parameter_with_state"): _first,
    ImportedName("torch._tensor", "_rebuild_from_type_v2"): _with_attributes,
    ImportedName("torch", "Size"): _size,
    ImportedName("torch", "device"): _first,
    ImportedName("torch", "Tensor"): None,
    PARAMETER: None,
    UNTYPED: None,
    **{ImportedName("torch", name): None for name in STORAGES},
    **dict.fromkeys(DTYPES),
    **{ImportedName("torch", name): None for name in OTHER_DTYPES},
}


def _packed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether elements follow each other in the order of the shape."""
    expected = 1
    for dim, step in zip(reversed(shape), reversed(strides), strict=True):
        if dim > 1 and step != expected:
            return not math.prod(shape)
        expected *= dim
    return True


def _gather(tensor: StridedTensor, file: SourceFile) -> NDArray[Any]:
    """The elements of a tensor with strides, in the order of its shape."""
    dtype = tensor.dtype.to_numpy()
    places = zip(tensor.shape, tensor.strides, strict=True)
    steps = tuple(step * dtype.itemsize if dim > 1 else 0 for dim, step in places)
    start = tensor.entry.start + tensor.offset * dtype.itemsize
    last = sum((dim - 1) * step for dim, step in zip(tensor.shape, steps, strict=True))
    spanned = file.array(start, last + dtype.itemsize)
    return np.ascontiguousarray(np.ndarray(tensor.shape, dtype, spanned.data, 0, steps))
