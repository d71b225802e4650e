"""Operations as tensor expressions: the general case, scheduled by rule.

These run anywhere and for any shape. What a model spends its time in has a kernel of its own.
bfloat16 is carried as its bits, so its elements become float32 before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tvm import te, tirx

from maxtool.compiler.kernels.formulas import FORMULAS, Arithmetic
from maxtool.dtype import DType

Expr: TypeAlias = Any  # tvm ships no types
Compute: TypeAlias = Callable[..., Any]

# Computed in float32 and rounded once, as NumPy and ml_dtypes do.
NARROW = (DType.float16, DType.bfloat16)


def elementwise(op: str, dtype: DType) -> Compute:
    """An operation of the table on elements of a type, with broadcasting."""

    def compute(*operands: Expr) -> Expr:
        rank = max(len(operand.shape) for operand in operands)
        sizes = _broadcast_sizes([_padded(operand.shape, rank) for operand in operands])

        def element(*index: Expr) -> Expr:
            values = [operand(*broadcast_index(index, operand.shape)) for operand in operands]
            if op == "where":  # its choices are not computed with
                return tirx.Select(*values)
            wide = [widened(value, dtype) for value in values]
            result = FORMULAS[op](Arithmetic(str(wide[0].ty)), *wide)
            return result if str(result.ty) == "bool" else narrowed(result, dtype)

        return te.compute(sizes, element, name=op)

    return compute


def widened(value: Expr, dtype: DType) -> Expr:
    """One element as it is computed with: 16-bit floats as float32."""
    return as_float32(value) if dtype in NARROW else value


def narrowed(value: Expr, dtype: DType) -> Expr:
    """Return the computed value in its stored type."""
    if dtype is DType.bfloat16:
        return to_bfloat16(value)
    return value.astype("float16") if dtype is DType.float16 else value


def linear(weight_dtype: DType, dtype: DType) -> Compute:
    """``x[rows, k] @ weight[n, k].T + bias[n]`` for a weight that is not packed.

    ``dtype``, float32 or float64, is that of x, the bias, the sums and the result.
    """

    def compute(x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
        k = te.reduce_axis((0, weight.shape[1]), name="k")
        product = te.compute(
            (x.shape[0], weight.shape[0]),
            lambda i, j: te.sum(x[i, k] * _as(weight(j, k), weight_dtype, dtype), axis=k),
            name="product",
        )
        if bias is None:
            return product
        return te.compute(product.shape, lambda i, j: product[i, j] + bias[j], name="biased")

    return compute


def row_numbers(vocab: int) -> Compute:
    """Integers as int64, the nearest of 0 to ``vocab - 1``."""

    def compute(ids: Expr) -> Expr:
        dtype = str(ids(0).ty)
        limit = min(vocab - 1, int(tirx.max_value(dtype).value))
        last, zero = tirx.const(limit, dtype), tirx.const(0, dtype)
        return te.compute(
            ids.shape, lambda i: tirx.max(tirx.min(ids(i), last), zero).astype("int64")
        )

    return compute


def embedding(weight_dtype: DType, dtype: DType) -> Compute:
    """Rows of ``weight[vocab, dim]``, in ``dtype``; ids[rows] int64 are numbers of rows."""

    def compute(ids: Expr, weight: Expr) -> Expr:
        return te.compute(
            (ids.shape[0], weight.shape[1]),
            lambda i, j: _as(weight(ids(i), j), weight_dtype, dtype),
            name="rows",
        )

    return compute


def _as(value: Expr, source: DType, dtype: DType) -> Expr:
    """One element of a float type in float32 or float64."""
    return (as_float32(value) if source in NARROW else value).astype(dtype.value)


def as_float32(value: Expr) -> Expr:
    """One element as float32; uint16 holds the bits of a bfloat16."""
    if str(value.ty) == "uint16":
        return tirx.reinterpret("float32", value.astype("uint32") << tirx.const(16, "uint32"))
    return value.astype("float32")


def expert_linear(per_row: int) -> Compute:
    """``x[rows] @ weight[chosen].T``, ``per_row`` times for each row, for matrices not packed."""

    def compute(x: Expr, weight: Expr, chosen: Expr) -> Expr:
        experts, out, width = weight.shape
        k = te.reduce_axis((0, width), name="k")
        zero, last = tirx.const(0, "int64"), tirx.Cast("int64", experts - 1)

        def element(i: Expr, j: Expr) -> Expr:
            expert = tirx.max(tirx.min(chosen(i), last), zero)
            return te.sum(x(i // per_row, k) * as_float32(weight(expert, j, k)), axis=k)

        return te.compute((chosen.shape[0], out), element, name="expert_linear")

    return compute


def matmul(dtype: DType) -> Compute:
    """The product over the last two dimensions; those before them broadcast."""

    def compute(x: Expr, y: Expr) -> Expr:
        rank = max(len(x.shape), len(y.shape)) - 2
        k = te.reduce_axis((0, x.shape[-1]), name="k")
        outer = _broadcast_sizes([_padded(operand.shape[:-2], rank) for operand in (x, y)])

        def element(*index: Expr) -> Expr:
            *batch, i, j = index
            left = x(*broadcast_index(batch, x.shape[:-2]), i, k)
            right = y(*broadcast_index(batch, y.shape[:-2]), k, j)
            return te.sum(widened(left, dtype) * widened(right, dtype), axis=k)

        product = te.compute((*outer, x.shape[-2], y.shape[-1]), element, name="product")
        if dtype not in NARROW:
            return product
        return te.compute(product.shape, lambda *i: narrowed(product(*i), dtype), name="rounded")

    return compute


def _padded(shape: Sequence[Expr], rank: int) -> list[Expr]:
    """A shape with ones before it, up to ``rank`` dimensions."""
    return [1] * (rank - len(shape)) + list(shape)


def _broadcast_sizes(shapes: Sequence[Sequence[Expr]]) -> list[Expr]:
    """Return, for each dimension, the size that is not 1."""
    return [
        next((size for size in sizes if not _is_one(size)), 1)
        for sizes in zip(*shapes, strict=True)
    ]


def broadcast_index(index: Sequence[Expr], shape: Sequence[Expr]) -> list[Expr]:
    """Return the index in an operand of that shape from which an element of the result is read."""
    own = list(index)[len(index) - len(shape) :]
    return [0 if _is_one(size) else at for size, at in zip(shape, own, strict=True)]


def _is_one(size: Expr) -> bool:
    return isinstance(size, int | tirx.IntImm) and int(size) == 1


def to_bfloat16(value: Expr) -> Expr:
    """The bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = tirx.reinterpret("uint32", value)
    last, sixteen = tirx.const(1, "uint32"), tirx.const(16, "uint32")
    rounded = (bits + tirx.const(0x7FFF, "uint32") + ((bits >> sixteen) & last)) >> sixteen
    quiet = (bits >> sixteen) | tirx.const(0x40, "uint32")
    return tirx.Select(tirx.isnan(value), quiet, rounded).astype("uint16")
