"""Casts, to NumPy's and ml_dtypes' bits.

The 8-bit floats, whose conversions TVM gets wrong on a CPU, are looked up in tables of all their
numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from maxtool.compiler.lowering.function_lowering import FunctionLowering
from maxtool.compiler.lowering.tensor_expressions import Compute, Expr, as_float32, to_bfloat16
from maxtool.compiler.storage_types import bits, stored
from maxtool.dtype import DType
from maxtool.graph import Node


def cast_rule(function: FunctionLowering, node: Node) -> None:
    """The rule of the operation ``cast``."""
    (x,), (result,) = node.inputs, node.outputs
    if x.dtype is result.dtype:
        value = function.to_keep(x)
    else:
        value = converted(function, function.get(x), x.dtype, result.dtype)
    function.set_whole(result, value)


def bitcast_rule(function: FunctionLowering, node: Node) -> None:
    """The rule of the operation ``bitcast``: types that are held as the same bits are one."""
    (x,), (result,) = node.inputs, node.outputs
    held = stored(result.dtype)
    if stored(x.dtype) == held:
        function.set_whole(result, function.to_keep(x))
        return
    value = function.compute(_reinterpreted(held), function.get(x), name="bitcast")
    function.set_whole(result, value)


def _reinterpreted(dtype: str) -> Compute:
    return lambda x: te.compute(x.shape, lambda *i: tirx.reinterpret(dtype, x(*i)))


def converted(function: FunctionLowering, value: Expr, source: DType, dtype: DType) -> Expr:
    """``value``, of the type ``source``, in another type; itself if it is of that."""
    if source is dtype:
        return value
    if _is_float8(source):
        wide = DType.float32 if _is_float8(dtype) else dtype
        table = _constant(source, wide)
        value = function.compute(_looked_up, value, table, name="cast")
        return converted(function, value, wide, dtype)
    if _is_float8(dtype):
        wide = converted(function, value, source, DType.float32)
        table = _constant(DType.bfloat16, dtype)
        return function.compute(_looked_up_float, wide, table, name="cast")
    return function.compute(_cast(source, dtype), value, name="cast")


def _cast(source: DType, dtype: DType) -> Compute:
    """The elements of one type, which has no 8 bits if it is a float, in another such type."""
    if dtype is DType.bfloat16:
        return lambda x: te.compute(x.shape, lambda *i: to_bfloat16(x(*i).astype("float32")))
    if source.is_float() and dtype.is_integral():
        return lambda x: te.compute(x.shape, lambda *i: _cut(_wide(x(*i), source), dtype.value))
    if source is DType.bfloat16:
        return lambda x: te.compute(x.shape, lambda *i: as_float32(x(*i)).astype(dtype.value))
    return lambda x: topi.cast(x, dtype.value)


def _wide(value: Expr, source: DType) -> Expr:
    """A float as float32, or as float64 if it is one."""
    return value if source is DType.float64 else as_float32(value)


def _cut(value: Expr, dtype: str) -> Expr:
    """A float without its digits after the point; negative ones wrap around where no sign is."""
    if not dtype.startswith("u"):
        return value.astype(dtype)
    signed = value.astype("int64").astype(dtype)
    if dtype != "uint64":
        return signed
    limit = tirx.const(2.0**63, str(value.ty))
    return tirx.Select(value < limit, signed, value.astype(dtype))


def _is_float8(dtype: DType) -> bool:
    return dtype.value.startswith("float8")


def _constant(source: DType, dtype: DType) -> Expr:
    table = _table(source, dtype)
    return relax.const(table, str(table.dtype))  # else it narrows 64 bits to 32


@cache
def _table(source: DType, dtype: DType) -> np.ndarray[Any, Any]:
    """Every number of a float of 8 or 16 bits in another type, as it is carried."""
    size = source.size_in_bytes
    every = np.arange(1 << 8 * size, dtype=f"u{size}").view(source.to_numpy())
    with np.errstate(invalid="ignore", over="ignore"):
        return bits(every.astype(np.float32).astype(dtype.to_numpy()))


def _looked_up(x: Expr, table: Expr) -> Expr:
    return te.compute(x.shape, lambda *i: table(x(*i).astype("int64")), name="cast")


def _looked_up_float(x: Expr, table: Expr) -> Expr:
    """Look up the bfloat16 below, its last bit set where digits were lost.

    Such a number lies on the same side of every tie of the narrower type as the number itself.
    """

    def element(*index: Expr) -> Expr:
        bits = tirx.reinterpret("uint32", x(*index))
        low = tirx.bitwise_and(bits, tirx.const(0xFFFF, "uint32"))
        lost = tirx.Select(tirx.EQ(low, tirx.const(0, "uint32")), low, tirx.const(1, "uint32"))
        high = tirx.shift_right(bits, tirx.const(16, "uint32"))
        return table(tirx.bitwise_or(high, lost).astype("int64"))

    return te.compute(x.shape, element, name="cast")
