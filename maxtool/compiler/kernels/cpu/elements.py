"""Elements of any type as they are computed with: 16-bit floats as float32, the rest as it is."""

# ruff: noqa: F403, F405 - kernels import one module, which has the names of element_types, too

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.element_types import *

# Types of which kernels that compute in float32 read and write whole numbers.
LEVELS = ("int8", "uint8")


def width_of(dtype: str, width: int) -> int:
    """Elements of a vector: those of float32, or one, for types that have no vector kernels.

    Of bytes there are as many: only their largest are looked for.
    """
    return width if compute_type(dtype) in ("float32", *LEVELS) else 1


def read(buffer: b.Buffer, index: b.Indices, dtype: str, width: int = 1) -> b.Expr:
    """Neighbours along the last dimension, in the type they are computed with."""
    if compute_type(dtype) == "float32":
        return b.load_weight(buffer, index, width, dtype)
    return b.load(buffer, index, width)


def write(buffer: b.Buffer, value: b.Expr, index: b.Indices, dtype: str, width: int = 1) -> None:
    """Store what was computed, rounded to nearest even."""
    if dtype == "float16":
        value = T.Cast(b.vector_type("float16", width), value)
    elif dtype == "bfloat16":
        value = bfloat16(b.let(value), width)
    b.store(buffer, value, index, width)


def as_float(value: b.Expr, dtype: str, width: int = 1) -> b.Expr:
    """Whole numbers of up to 32 bits as float32, by way of int32; float32 as it is."""
    if dtype == "float32":
        return value
    wide = value if dtype == "int32" else T.Cast(b.vector_type("int32", width), value)
    return T.Cast(b.vector_type("float32", width), wide)


def whole(value: b.Expr, dtype: str, width: int = 1) -> b.Expr:
    """Return float32 that are whole numbers of a narrow type in that type; others as they are."""
    if dtype not in LEVELS:
        return value
    wide = T.Cast(b.vector_type("int32", width), value)
    return T.Cast(b.vector_type(dtype, width), wide)


def bfloat16(value: b.Expr, width: int) -> b.Expr:
    """The bits of the nearest bfloat16; a NaN stays one."""

    def number(n: int) -> b.Expr:
        return constant(n, "uint32", width)

    words = b.vector_type("uint32", width)
    bits = b.let(T.reinterpret(words, value))
    high = b.let(T.shift_right(bits, number(16)))
    rounded = T.shift_right(bits + number(0x7FFF) + (high & number(1)), number(16))
    magnitude = bits & number(0x7FFF_FFFF)
    chosen = T.Select(magnitude > number(0x7F80_0000), high | number(0x40), rounded)
    return T.Cast(b.vector_type("uint16", width), chosen)


def rounded(value: b.Expr, dtype: str, width: int = 1) -> b.Expr:
    """Return the computed value as it reads after it is stored: rounded to the stored type."""
    if dtype not in WIDENED:
        return value
    held = b.scratch((width,), storage_type(dtype))
    write(held, value, (0,), dtype, width)
    return read(held, (0,), dtype, width)


def exp(value: b.Expr, dtype: str, width: int = 1) -> b.Expr:
    """``e**value`` in float32 or float64."""
    return b.exp(value, width) if dtype == "float32" else T.exp(value)


def load_vector(buffer: b.Buffer, index: b.Indices, width: int, dtype: str = "float32") -> b.Expr:
    """Load float32 neighbours into a register, or bytes as such."""
    if dtype in LEVELS:
        return b.let(as_float(b.load(buffer, index, width), dtype, width))
    return b.let(b.load_weight(buffer, index, width, dtype))


def store_vector(
    buffer: b.Buffer, vector: b.Expr, index: b.Indices, width: int, dtype: str = "float32"
) -> None:
    """Store float32 neighbours, rounded to nearest even; whole numbers as bytes."""
    write(buffer, whole(vector, dtype, width), index, dtype, width)
