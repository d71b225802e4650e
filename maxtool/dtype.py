"""Element types, and one table that says what each file format and library calls them."""

from __future__ import annotations

import builtins
from enum import Enum
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401 - its types get names in NumPy
import numpy as np


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
        return NUMPY[self].itemsize

    def is_float(self) -> builtins.bool:
        """Return whether it is a floating-point type, the 8-bit ones included."""
        return "float" in self.value

    def is_integral(self) -> builtins.bool:
        """Return whether it is a signed or unsigned integer type; ``bool`` is not."""
        return "int" in self.value

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 and the float8 types are those of ``ml_dtypes``."""
        return NUMPY[self]

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


class DTypeRow(NamedTuple):
    """Names of one element type in files; ``None`` where a format has no such type."""

    safetensors: str | None
    gguf: int | None
    onnx: int | None


# Whole numbers of 8 bits, which kernels multiply by integer dots.
BYTES = (DType.int8, DType.uint8)

NUMPY = {dtype: np.dtype(dtype.value) for dtype in DType}
# Codes: the safetensors README; ggml.h's enum ggml_type; onnx.proto3's TensorProto.DataType.
TABLE: dict[DType, DTypeRow] = {
    DType.bool: DTypeRow("BOOL", None, 9),
    DType.int8: DTypeRow("I8", 24, 3),
    DType.int16: DTypeRow("I16", 25, 5),
    DType.int32: DTypeRow("I32", 26, 6),
    DType.int64: DTypeRow("I64", 27, 7),
    DType.uint8: DTypeRow("U8", None, 2),
    DType.uint16: DTypeRow("U16", None, 4),
    DType.uint32: DTypeRow("U32", None, 12),
    DType.uint64: DTypeRow("U64", None, 13),
    DType.float8_e4m3fn: DTypeRow("F8_E4M3", None, 17),
    DType.float8_e4m3fnuz: DTypeRow("F8_E4M3FNUZ", None, 18),
    DType.float8_e5m2: DTypeRow("F8_E5M2", None, 19),
    DType.float8_e5m2fnuz: DTypeRow("F8_E5M2FNUZ", None, 20),
    DType.float8_e8m0fnu: DTypeRow("F8_E8M0", None, 24),
    DType.float16: DTypeRow("F16", 1, 10),
    DType.bfloat16: DTypeRow("BF16", 30, 16),
    DType.float32: DTypeRow("F32", 0, 1),
    DType.float64: DTypeRow("F64", 28, 11),
}

BY_SAFETENSORS = {row.safetensors: dtype for dtype, row in TABLE.items() if row.safetensors}
BY_GGUF = {row.gguf: dtype for dtype, row in TABLE.items() if row.gguf is not None}
BY_ONNX = {row.onnx: dtype for dtype, row in TABLE.items() if row.onnx is not None}
