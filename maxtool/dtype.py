"""Element types, and one table that says what each file format and library calls them."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt


class DType(Enum):
    """The type of one tensor element. The value is the name TVM and NumPy use."""

    bool = "bool"
    int8 = "int8"
    int16 = "int16"
    int32 = "int32"
    int64 = "int64"
    uint8 = "uint8"
    uint16 = "uint16"
    uint32 = "uint32"
    uint64 = "uint64"
    float8_e4m3fn = "float8_e4m3fn"
    float8_e4m3fnuz = "float8_e4m3fnuz"
    float8_e5m2 = "float8_e5m2"
    float8_e5m2fnuz = "float8_e5m2fnuz"
    float8_e8m0fnu = "float8_e8m0fnu"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"

    @property
    def size_in_bytes(self) -> int:
        """Bytes one element takes."""
        return TABLE[self].bits // 8

    def is_float(self) -> builtins.bool:
        """Return whether it is a floating-point type, the 8-bit ones included."""
        return "float" in self.value

    def is_integral(self) -> builtins.bool:
        """Return whether it is a signed or unsigned integer type; ``bool`` is not."""
        return "int" in self.value

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 and the float8 types are those of ``ml_dtypes``."""
        return TABLE[self].numpy

    @classmethod
    def from_numpy(cls, dtype: Any) -> DType:  # noqa: ANN401 - whatever np.dtype() takes
        """The ``DType`` of a NumPy dtype.

        Raises:
            ValueError: If there is no such element type here (complex, strings, records).
        """
        name = np.dtype(dtype).name
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(member.value for member in cls)
            raise ValueError(f"no DType for NumPy's {name!r}; there are {known}") from None

    def __repr__(self) -> str:
        return f"DType.{self.name}"


@dataclass(frozen=True, slots=True)
class DTypeRow:
    """Names of one element type elsewhere; ``None`` where a format has no such type."""

    bits: int
    numpy: np.dtype[Any]
    safetensors: str | None
    gguf: int | None
    onnx: int | None


def _row(
    bits: int,
    numpy: npt.DTypeLike,
    safetensors: str | None,
    gguf: int | None,
    onnx: int | None,
) -> DTypeRow:
    return DTypeRow(bits, np.dtype(numpy), safetensors, gguf, onnx)


# Codes: the safetensors README; ggml.h's enum ggml_type; onnx.proto3's TensorProto.DataType.
TABLE: dict[DType, DTypeRow] = {
    DType.bool: _row(8, np.bool_, "BOOL", None, 9),
    DType.int8: _row(8, np.int8, "I8", 24, 3),
    DType.int16: _row(16, np.int16, "I16", 25, 5),
    DType.int32: _row(32, np.int32, "I32", 26, 6),
    DType.int64: _row(64, np.int64, "I64", 27, 7),
    DType.uint8: _row(8, np.uint8, "U8", None, 2),
    DType.uint16: _row(16, np.uint16, "U16", None, 4),
    DType.uint32: _row(32, np.uint32, "U32", None, 12),
    DType.uint64: _row(64, np.uint64, "U64", None, 13),
    DType.float8_e4m3fn: _row(8, ml_dtypes.float8_e4m3fn, "F8_E4M3", None, 17),
    DType.float8_e4m3fnuz: _row(8, ml_dtypes.float8_e4m3fnuz, "F8_E4M3FNUZ", None, 18),
    DType.float8_e5m2: _row(8, ml_dtypes.float8_e5m2, "F8_E5M2", None, 19),
    DType.float8_e5m2fnuz: _row(8, ml_dtypes.float8_e5m2fnuz, "F8_E5M2FNUZ", None, 20),
    DType.float8_e8m0fnu: _row(8, ml_dtypes.float8_e8m0fnu, "F8_E8M0", None, 24),
    DType.float16: _row(16, np.float16, "F16", 1, 10),
    DType.bfloat16: _row(16, ml_dtypes.bfloat16, "BF16", 30, 16),
    DType.float32: _row(32, np.float32, "F32", 0, 1),
    DType.float64: _row(64, np.float64, "F64", 28, 11),
}

BY_SAFETENSORS = {row.safetensors: dtype for dtype, row in TABLE.items() if row.safetensors}
BY_GGUF = {row.gguf: dtype for dtype, row in TABLE.items() if row.gguf is not None}
BY_ONNX = {row.onnx: dtype for dtype, row in TABLE.items() if row.onnx is not None}
