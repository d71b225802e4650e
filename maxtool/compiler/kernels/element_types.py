"""Element types as kernels have them: how they are passed, and what they are computed with."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.kernel_builder import Expr, splat, vector_type

# 16-bit floats are computed with as float32, the rest as it is.
WIDENED = ("float16", "bfloat16")


def storage_type(dtype: str) -> str:
    """Return the storage type of an element type: bfloat16 and 8-bit floats travel as bits."""
    if dtype.startswith("float8"):
        return "uint8"
    return "uint16" if dtype == "bfloat16" else dtype


def compute_type(dtype: str) -> str:
    """The type that elements of ``dtype`` are computed with."""
    return "float32" if dtype in WIDENED else dtype


def converted(value: Expr, dtype: str, into: str, width: int = 1) -> Expr:
    """Return a number that elements of ``dtype`` are computed with, as type ``into``."""
    return value if compute_type(dtype) == into else T.Cast(vector_type(into, width), value)


def constant(value: float, dtype: str, width: int = 1) -> Expr:
    """A number of a type, in every lane."""
    return splat(tirx.const(value, dtype), width)
