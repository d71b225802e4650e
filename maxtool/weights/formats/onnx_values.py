"""The typed fields of ONNX tensors: numbers of protobuf that stand for other types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.formats.protobuf import MAX_VARINT_BYTES, Span
from maxtool.weights.source_file import SourceFile
from maxtool.weights.tensor_info import TensorSpec

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


def unpack(spec: TensorSpec, span: Span, file: SourceFile) -> NDArray[Any]:
    """A tensor's values: numbers in groups of seven bits, as many as the shape has elements."""
    values = _numbers(spec, span, file)
    dtype = spec.dtype.to_numpy()
    # Floats below 32 bits are in the low bits of an integer.
    bits = np.dtype(f"u{dtype.itemsize}") if spec.dtype.is_float() else dtype
    if spec.dtype not in (DType.uint64, DType.int64):
        limits = (0, 1) if bits.kind == "b" else (np.iinfo(bits).min, np.iinfo(bits).max)
        signed = values.view(np.int64)
        if ((signed < limits[0]) | (signed > limits[1])).any():
            file.fail(f"a value is outside {limits[0]} to {limits[1]}", span.start, spec.name)
    return values.view(np.int64).astype(bits).view(dtype).reshape(spec.shape)


def _numbers(spec: TensorSpec, span: Span, file: SourceFile) -> NDArray[np.uint64]:
    """Numbers of 64 bits; the last byte of each has no high bit."""
    raw = file.array(span.start, span.end - span.start)
    ends = np.flatnonzero(raw < 0x80)
    if len(ends) != spec.size or ends[-1] != len(raw) - 1:
        file.fail(f"{len(ends)} values for the shape {list(spec.shape)}", span.start, spec.name)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > MAX_VARINT_BYTES:
        file.fail(f"a number of more than {MAX_VARINT_BYTES} bytes", span.start, spec.name)
    values = np.zeros(spec.size, np.uint64)
    for index in range(longest):
        longer = np.flatnonzero(lengths > index)
        group = (raw[starts[longer] + index] & 0x7F).astype(np.uint64)
        values[longer] |= group << np.uint64(7 * index)
    return values
