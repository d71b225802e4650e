"""Elements of any type in the registers of a thread: 16-bit floats as float32."""

# ruff: noqa: F403, F405 - kernels import one module, which has the names of element_types, too

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.element_types import *

# The function that rounds two of them into one register.
PACK = {"float16": "mt_pack_f16", "bfloat16": "mt_pack_bf16"}


def read(buffer: b.Buffer, index: b.Indices, dtype: str, width: int = 1) -> b.Expr:  # noqa: ARG001
    """Read one element, in the type it is computed with; here and below, ``width`` is 1."""
    value = b.load(buffer, index)
    return b.to_float32(value, dtype) if dtype in WIDENED else value


def write(buffer: b.Buffer, value: b.Expr, index: b.Indices, dtype: str, width: int = 1) -> None:
    """Store what was computed, rounded to nearest even."""
    b.store(buffer, b.to_storage(value, dtype) if dtype in WIDENED else value, index, width)


def rounded(value: b.Expr, dtype: str, width: int = 1) -> b.Expr:  # noqa: ARG001
    """Return what was computed as it would be read after it was written."""
    return b.to_float32(b.to_storage(value, dtype), dtype) if dtype in WIDENED else value


def exp(value: b.Expr, dtype: str, width: int = 1) -> b.Expr:  # noqa: ARG001
    """Return ``e**value`` in float32 or float64."""
    return T.exp(value)
