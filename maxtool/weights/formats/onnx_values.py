"""The typed fields of ONNX tensors: numbers of protobuf that stand for other types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MalformedFile
from maxtool.weights.formats.protobuf import MAX_VARINT_BYTES, Span
from maxtool.weights.source_file import SourceFile

# The fields whose bytes are those of an array, and those of numbers in groups of seven bits.
AS_IN_MEMORY = ("float_data", "double_data")
FIELDS = (*AS_IN_MEMORY, "int32_data", "int64_data", "uint64_data")
# onnx.proto's comments: which field a type is in, where it is not in raw_data.
FIELD_OF: Mapping[DType, str] = {
    **dict.fromkeys(DType, "int32_data"),
    DType.float32: "float_data",
    DType.float64: "double_data",
    DType.int64: "int64_data",
    DType.uint32: "uint64_data",
    DType.uint64: "uint64_data",
}


@dataclass(frozen=True, slots=True)
class PackedNumbers:
    """A tensor whose values are numbers in groups of seven bits, one after the other."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    file: Path
    span: Span


def unpack(packed: PackedNumbers, file: SourceFile) -> NDArray[Any]:
    """The tensor's values.

    Raises:
        MalformedFile: If there are more or fewer than the shape has, or one is out of range.
    """
    size = packed.span.end - packed.span.start
    values = _numbers(file.array(packed.span.start, size), packed)
    dtype = packed.dtype.to_numpy()
    # Floats below 32 bits are in the low bits of an integer.
    bits = np.dtype(f"u{dtype.itemsize}") if packed.dtype.is_float() else dtype
    if packed.dtype not in (DType.uint64, DType.int64):
        limits = (0, 1) if bits.kind == "b" else (np.iinfo(bits).min, np.iinfo(bits).max)
        signed = values.view(np.int64)
        if ((signed < limits[0]) | (signed > limits[1])).any():
            raise _wrong(f"a value is outside {limits[0]} to {limits[1]}", packed)
    return values.view(np.int64).astype(bits).view(dtype).reshape(packed.shape)


def _numbers(raw: NDArray[np.uint8], packed: PackedNumbers) -> NDArray[np.uint64]:
    """Numbers of 64 bits; the last byte of each has no high bit."""
    ends = np.flatnonzero(raw < 0x80)
    count = math.prod(packed.shape)
    if len(ends) != count or ends[-1] != len(raw) - 1:
        raise _wrong(f"{len(ends)} values for the shape {list(packed.shape)}", packed)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > MAX_VARINT_BYTES:
        raise _wrong(f"a number of more than {MAX_VARINT_BYTES} bytes", packed)
    values = np.zeros(count, np.uint64)
    for index in range(longest):
        longer = np.flatnonzero(lengths > index)
        group = (raw[starts[longer] + index] & 0x7F).astype(np.uint64)
        values[longer] |= group << np.uint64(7 * index)
    return values


def _wrong(what: str, packed: PackedNumbers) -> MalformedFile:
    return MalformedFile(what, file=packed.file, tensor=packed.name, offset=packed.span.start)
