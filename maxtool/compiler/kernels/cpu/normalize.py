"""Softmax and normalisation of rows of any length and floating-point type."""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.cpu.reduction import fold_row
from maxtool.compiler.kernels.ordering import COMBINE

Read = Callable[[b.Index, int], b.Expr]

# Operations on an element of a row that take an exponential, in additions.
HEAVY = 16


def softmax_rows(lanes: int, op: str, dtype: str) -> b.PrimFunc:
    """Build ``exp(x - max) / sum(exp(x - max))`` of each row, or its logarithm (logsoftmax).

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``.
    """
    lanes, kind = e.lanes_of(dtype, lanes), e.computed(dtype)
    with b.kernel(f"{op}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, n), e.stored(dtype))

        def row(i: b.Expr) -> None:
            def read(k: b.Index, width: int) -> b.Expr:
                return e.read(x, (i, k), width, dtype)

            top = b.let(fold_row(read, n, lanes, kind, COMBINE["max"]))

            def power(k: b.Index, width: int) -> b.Expr:
                return e.exp(read(k, width) - _spread(top, width), width, kind)

            total = b.let(fold_row(power, n, lanes, kind, COMBINE["sum"]))
            log = b.let(T.log(total)) if op == "logsoftmax" else None

            def finish(k: b.Index, width: int) -> None:
                if log is None:
                    value = power(k, width) / _spread(total, width)
                else:
                    value = read(k, width) - _spread(top, width) - _spread(log, width)
                e.write(y, value, (i, k), width, dtype)

            sweep(n, lanes, finish)

        b.each_row(rows, n * HEAVY, row)
    return made.function


def layer_norm_rows(lanes: int, dtype: str, weight: str, eps: float) -> b.PrimFunc:
    """Build ``(x - mean) / sqrt(variance + eps) * gamma + beta`` of each row.

    Parameters of the kernel: x[rows, n] of ``dtype``, gamma[n] and beta[n] of type ``weight``,
    y[rows, n] of ``dtype``.
    """
    lanes, kind = e.lanes_of(dtype, lanes), e.computed(dtype)
    with b.kernel(f"layer_norm_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        gamma, beta = (made.argument(name, (n,), e.stored(weight)) for name in ("gamma", "beta"))
        y = made.argument("y", (rows, n), e.stored(dtype))

        def row(i: b.Expr) -> None:
            normal = _normal(lambda k, width: e.read(x, (i, k), width, dtype), n, eps, lanes, kind)

            def finish(k: b.Index, width: int) -> None:
                scale, shift = (e.read_as(one, (k,), width, weight, kind) for one in (gamma, beta))
                e.write(y, normal(k, width) * scale + shift, (i, k), width, dtype)

            sweep(n, lanes, finish)

        b.each_row(rows, n * HEAVY, row)
    return made.function


def group_norm_rows(
    lanes: int, dtype: str, weight: str, eps: float, groups: int, channels: int
) -> b.PrimFunc:
    """Build the normalisation of each group, and the scale and shift of each channel.

    Parameters of the kernel: x[rows, n] of ``dtype``, a row for each group of each example, its
    channels one after the other; gamma[channels] and beta[channels] of type ``weight``; y like x.
    """
    lanes, kind = e.lanes_of(dtype, lanes), e.computed(dtype)
    with b.kernel(f"group_norm_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        gamma = made.argument("gamma", (channels,), e.stored(weight))
        beta = made.argument("beta", (channels,), e.stored(weight))
        y = made.argument("y", (rows, n), e.stored(dtype))
        own = channels // groups

        def row(i: b.Expr) -> None:
            normal = _normal(lambda k, width: e.read(x, (i, k), width, dtype), n, eps, lanes, kind)
            size = b.index(b.quotient(n, own))
            with T.serial(b.integer(own)) as c:
                at = b.index(b.remainder(i, groups) * own + c)
                scale = b.let(e.read_as(gamma, (at,), 1, weight, kind))
                shift = b.let(e.read_as(beta, (at,), 1, weight, kind))

                def finish(s: b.Index, width: int) -> None:
                    k = c * size + s
                    value = normal(k, width) * _spread(scale, width) + _spread(shift, width)
                    e.write(y, value, (i, k), width, dtype)

                sweep(size, lanes, finish)

        b.each_row(rows, n * HEAVY, row)
    return made.function


def rms_norm_rows(
    lanes: int, dtype: str, weight: str, eps: float, offset: float, round_first: bool
) -> b.PrimFunc:
    """Build ``x / sqrt(mean(x**2) + eps) * (w + offset)`` of each row.

    Parameters of the kernel: x[rows, n] of ``dtype``, w[n] of type ``weight``, y[rows, n].

    Args:
        lanes: float32 elements of a vector.
        dtype: The type of x and y.
        weight: The type of w.
        eps: Added to the mean.
        offset: Added to the weight.
        round_first: Whether both factors are rounded to ``dtype`` before they are multiplied.
    """
    lanes, kind = e.lanes_of(dtype, lanes), e.computed(dtype)
    with b.kernel(f"rms_norm_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        w = made.argument("w", (n,), e.stored(weight))
        y = made.argument("y", (rows, n), e.stored(dtype))

        def row(i: b.Expr) -> None:
            def read(k: b.Index, width: int) -> b.Expr:
                return b.let(e.read(x, (i, k), width, dtype))

            def square(k: b.Index, width: int) -> b.Expr:
                value = read(k, width)
                return value * value

            scale = _inverse_root(fold_row(square, n, lanes, kind, COMBINE["sum"]), n, eps, kind)

            def finish(k: b.Index, width: int) -> None:
                normal = read(k, width) * _spread(scale, width)
                factor = e.read_as(w, (k,), width, weight, kind) + e.constant(offset, kind, width)
                if round_first:
                    normal, factor = (e.rounded(one, width, dtype) for one in (normal, factor))
                e.write(y, normal * factor, (i, k), width, dtype)

            sweep(n, lanes, finish)

        b.each_row(rows, n * HEAVY, row)
    return made.function


def _normal(read: Read, n: b.Expr, eps: float, lanes: int, kind: str) -> Read:
    """Elements of a row less their mean, over the root of their variance and ``eps``."""
    total = fold_row(read, n, lanes, kind, COMBINE["sum"])
    mean = b.let(total / T.Cast(kind, n))

    def square(k: b.Index, width: int) -> b.Expr:
        value = b.let(read(k, width) - _spread(mean, width))
        return value * value

    scale = _inverse_root(fold_row(square, n, lanes, kind, COMBINE["sum"]), n, eps, kind)
    return lambda k, width: (read(k, width) - _spread(mean, width)) * _spread(scale, width)


def _inverse_root(total: b.Expr, n: b.Expr, eps: float, kind: str) -> b.Expr:
    """``1 / sqrt(total / n + eps)``."""
    mean = total / T.Cast(kind, n)
    return b.let(e.constant(1.0, kind) / T.sqrt(mean + e.constant(eps, kind)))


def _spread(value: b.Expr, width: int) -> b.Expr:
    return value if width == 1 else T.broadcast(value, width)


def sweep(n: b.Expr, lanes: int, body: Callable[[b.Index, int], None]) -> None:
    """Run ``body(offset, lanes)`` over ``n`` elements of a row: vectors, then the rest."""
    whole = b.index(b.quotient(n, lanes))
    if lanes > 1:
        with T.serial(whole) as j:
            body(b.index(j * lanes), lanes)
    with T.serial(b.index(whole * lanes) if lanes > 1 else b.integer(0), n) as k:
        body(k, 1)
