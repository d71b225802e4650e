"""Operations as tensor expressions: the general case, scheduled by rule.

These run anywhere and for any shape. What a model spends its time in has a kernel of its own.
bfloat16 is carried as its bits, so it is only ever cast here, never computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tvm import te, tirx, topi

from maxtool.dtype import DType
from maxtool.errors import CompilationFailed

Expr: TypeAlias = Any  # tvm ships no types
Compute: TypeAlias = Callable[..., Any]

SQRT_HALF = 0.7071067811865476


def _gelu(x: Expr) -> Expr:
    half = tirx.const(0.5, x.dtype)
    return te.compute(
        x.shape,
        lambda *i: half * x(*i) * (1 + tirx.erf(x(*i) * tirx.const(SQRT_HALF, x.dtype))),
    )


def _silu(x: Expr) -> Expr:
    return te.compute(x.shape, lambda *i: x(*i) * tirx.sigmoid(x(*i)))


ELEMENTWISE: dict[str, Compute] = {
    "abs": topi.abs,
    "add": topi.add,
    "div": topi.divide,
    "exp": topi.exp,
    "gelu": _gelu,
    "log": topi.log,
    "maximum": topi.maximum,
    "minimum": topi.minimum,
    "mul": topi.multiply,
    "negative": topi.negative,
    "relu": lambda x: topi.maximum(x, tirx.const(0, x.dtype)),
    "rsqrt": topi.rsqrt,
    "sigmoid": topi.sigmoid,
    "silu": _silu,
    "sqrt": topi.sqrt,
    "sub": topi.subtract,
    "tanh": topi.tanh,
}


def linear(x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """``x[rows, k] @ weight[n, k].T + bias[n]`` for a weight that is not packed, in float32."""
    k = te.reduce_axis((0, weight.shape[1]), name="k")
    product = te.compute(
        (x.shape[0], weight.shape[0]),
        lambda i, j: te.sum(x[i, k] * as_float32(weight[j, k]), axis=k),
        name="product",
    )
    if bias is None:
        return product
    return te.compute(product.shape, lambda i, j: product[i, j] + bias[j], name="biased")


def embedding(ids: Expr, weight: Expr) -> Expr:
    """Rows of ``weight[vocab, dim]``, in float32; an id outside reads the nearest row."""
    last = tirx.Cast("int64", weight.shape[0]) - 1
    return te.compute(
        (ids.shape[0], weight.shape[1]),
        lambda i, j: as_float32(
            weight[tirx.max(tirx.min(ids[i], last), tirx.const(0, "int64")), j]
        ),
        name="rows",
    )


def as_float32(value: Expr) -> Expr:
    """One element as float32; uint16 holds the bits of a bfloat16."""
    if value.dtype == "uint16":
        return tirx.reinterpret("float32", value.astype("uint32") << tirx.const(16, "uint32"))
    return value.astype("float32")


def matmul(x: Expr, y: Expr) -> Expr:
    """The product over the last two dimensions; those before them broadcast."""
    return topi.matmul(x, y) if len(x.shape) == len(y.shape) == 2 else _batched(x, y)


def _batched(x: Expr, y: Expr) -> Expr:
    batch = max(len(x.shape), len(y.shape)) - 2
    k = te.reduce_axis((0, x.shape[-1]), name="k")
    shapes = [_padded(x.shape, batch), _padded(y.shape, batch)]
    sizes = [two if _is_one(one) else one for one, two in zip(*shapes, strict=True)]

    def element(*index: Expr) -> Expr:
        *outer, i, j = index
        left = x(*_broadcast(outer, x.shape), i, k)
        return te.sum(left * y(*_broadcast(outer, y.shape), k, j), axis=k)

    return te.compute((*sizes, x.shape[-2], y.shape[-1]), element, name="product")


def _padded(shape: Sequence[Expr], batch: int) -> list[Expr]:
    outer = list(shape)[:-2]
    return [1] * (batch - len(outer)) + outer


def _broadcast(outer: Sequence[Expr], shape: Sequence[Expr]) -> list[Expr]:
    own = list(shape)[:-2]
    indices = list(outer)[len(outer) - len(own) :]
    return [0 if _is_one(size) else index for size, index in zip(own, indices, strict=True)]


def _is_one(size: Expr) -> bool:
    return isinstance(size, int | tirx.IntImm) and int(size) == 1


def permute(dims: tuple[int, ...]) -> Compute:
    """The dimensions in the order ``dims``."""
    return lambda x: topi.transpose(x, list(dims))


def slice_elements(
    starts: tuple[int, ...],
    stops: tuple[int | None, ...],
    keep: tuple[bool, ...],
) -> Compute:
    """A range of each dimension; a number takes its dimension away, a negative one from the end."""

    def compute(x: Expr) -> Expr:
        firsts = [
            size + start if start < 0 else start
            for size, start in zip(x.shape, starts, strict=True)
        ]
        sizes = [
            size if stop is None else stop - start
            for size, start, stop, kept in zip(x.shape, starts, stops, keep, strict=True)
            if kept
        ]

        def element(*index: Expr) -> Expr:
            places = iter(index)
            return x(
                *(
                    first + next(places) if kept else first
                    for first, kept in zip(firsts, keep, strict=True)
                )
            )

        return te.compute(sizes, element, name="slice")

    return compute


LAYOUT: dict[str, Callable[..., Compute]] = {"permute": permute, "slice": slice_elements}


def cast(source: DType, dtype: DType) -> Compute:
    """The elements in another type.

    Raises:
        CompilationFailed: For a float8 type, which TVM converts wrongly on a CPU.
    """
    for kind in (source, dtype):
        if kind.value.startswith("float8"):
            raise CompilationFailed(
                f"no kernel casts {source.value} to {dtype.value}",
                hint="convert the data with WeightData.astype before the graph runs",
            )
    if DType.bfloat16 not in (source, dtype):
        return lambda x: topi.cast(x, dtype.value)
    if source is DType.bfloat16:
        return lambda x: te.compute(x.shape, lambda *i: as_float32(x(*i)).astype(dtype.value))
    return lambda x: te.compute(x.shape, lambda *i: _to_bfloat16(x(*i).astype("float32")))


def _to_bfloat16(value: Expr) -> Expr:
    """The bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = tirx.reinterpret("uint32", value)
    one, sixteen = tirx.const(1, "uint32"), tirx.const(16, "uint32")
    rounded = (bits + tirx.const(0x7FFF, "uint32") + ((bits >> sixteen) & one)) >> sixteen
    quiet = (bits >> sixteen) | tirx.const(0x40, "uint32")
    return tirx.Select(tirx.isnan(value), quiet, rounded).astype("uint16")
