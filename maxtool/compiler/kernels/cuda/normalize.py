"""Softmax and normalisation of rows of any length and floating-point type."""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda.rows import Team, each_row
from maxtool.compiler.kernels.ordering import COMBINE

Read = Callable[[b.Expr], b.Expr]


def softmax_rows(op: str, dtype: str) -> b.PrimFunc:
    """Build ``exp(x - max) / sum(exp(x - max))`` of each row, or its logarithm (logsoftmax).

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``.
    """
    kind = e.computed(dtype)
    with b.kernel(f"{op}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, n), e.stored(dtype))

        def row(i: b.Expr, team: Team) -> None:
            def read(k: b.Expr) -> b.Expr:
                return e.read(x, (i, k), dtype)

            top = team.fold(read, n, kind, COMBINE["max"])
            total = team.fold(lambda k: T.exp(read(k) - top), n, kind, COMBINE["sum"])
            log = b.let(T.log(total)) if op == "logsoftmax" else None

            def finish(k: b.Expr) -> None:
                below = b.let(read(k) - top)
                value = T.exp(below) / total if log is None else below - log
                e.write(y, value, (i, k), dtype)

            team.each(n, finish)

        each_row(rows, n, row)
    return made.function


def layer_norm_rows(dtype: str, weight: str, eps: float, out: str | None = None) -> b.PrimFunc:
    """Build ``(x - mean) / sqrt(variance + eps) * gamma + beta`` of each row.

    Parameters of the kernel: x[rows, n] of ``dtype``, gamma[n] and beta[n] of type ``weight``,
    y[rows, n] of type ``out``, or else ``dtype``.
    """
    kind = e.computed(dtype)
    with b.kernel(f"layer_norm_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        gamma, beta = (made.argument(name, (n,), e.stored(weight)) for name in ("gamma", "beta"))
        y = made.argument("y", (rows, n), e.stored(out or dtype))

        def row(i: b.Expr, team: Team) -> None:
            normal = _normal(lambda k: e.read(x, (i, k), dtype), team, n, eps, kind)

            def finish(k: b.Expr) -> None:
                scale, shift = (e.read_as(one, (k,), weight, kind) for one in (gamma, beta))
                e.write(y, normal(k) * scale + shift, (i, k), out or dtype)

            team.each(n, finish)

        each_row(rows, n, row)
    return made.function


def group_norm_rows(dtype: str, weight: str, eps: float, groups: int, channels: int) -> b.PrimFunc:
    """Build the normalisation of each group, and the scale and shift of each channel.

    Parameters of the kernel: x[rows, n] of ``dtype``, a row for each group of each example, its
    channels one after the other; gamma[channels] and beta[channels] of type ``weight``; y like x.
    """
    kind = e.computed(dtype)
    with b.kernel(f"group_norm_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        gamma = made.argument("gamma", (channels,), e.stored(weight))
        beta = made.argument("beta", (channels,), e.stored(weight))
        y = made.argument("y", (rows, n), e.stored(dtype))
        own = channels // groups

        def row(i: b.Expr, team: Team) -> None:
            normal = _normal(lambda k: e.read(x, (i, k), dtype), team, n, eps, kind)
            size = b.index(b.quotient(n, own))
            first = b.index(b.remainder(i, groups) * own)

            def finish(k: b.Expr) -> None:
                at = b.index(first + b.quotient(k, size))
                scale, shift = (e.read_as(one, (at,), weight, kind) for one in (gamma, beta))
                e.write(y, normal(k) * scale + shift, (i, k), dtype)

            team.each(n, finish)

        each_row(rows, n, row)
    return made.function


def rms_norm_rows(
    dtype: str,
    weight: str,
    eps: float,
    offset: float,
    round_first: bool,
    out: str | None = None,
) -> b.PrimFunc:
    """Build ``x / sqrt(mean(x**2) + eps) * (w + offset)`` of each row.

    Parameters of the kernel: x[rows, n] of ``dtype``, w[n] of type ``weight``, y[rows, n].

    Args:
        dtype: The type of x.
        weight: The type of w.
        eps: Added to the mean.
        offset: Added to the weight.
        round_first: Whether both factors are rounded to ``dtype`` before they are multiplied.
        out: The type of y, if not that of x.
    """
    kind = e.computed(dtype)
    with b.kernel(f"rms_norm_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        w = made.argument("w", (n,), e.stored(weight))
        y = made.argument("y", (rows, n), e.stored(out or dtype))

        def row(i: b.Expr, team: Team) -> None:
            def read(k: b.Expr) -> b.Expr:
                return b.let(e.read(x, (i, k), dtype))

            def square(k: b.Expr) -> b.Expr:
                value = read(k)
                return value * value

            total = team.fold(square, n, kind, COMBINE["sum"])
            scale = inverse_root(total / T.Cast(kind, n), eps, kind)

            def finish(k: b.Expr) -> None:
                normal = read(k) * scale
                factor = e.read_as(w, (k,), weight, kind) + e.constant(offset, kind)
                if round_first:
                    normal, factor = (e.rounded(one, dtype) for one in (normal, factor))
                e.write(y, normal * factor, (i, k), out or dtype)

            team.each(n, finish)

        each_row(rows, n, row)
    return made.function


def _normal(read: Read, team: Team, n: b.Expr, eps: float, kind: str) -> Read:
    """Elements of a row less their mean, over the root of their variance and ``eps``."""
    count = T.Cast(kind, n)
    mean = b.let(team.fold(read, n, kind, COMBINE["sum"]) / count)

    def square(k: b.Expr) -> b.Expr:
        value = b.let(read(k) - mean)
        return value * value

    scale = inverse_root(team.fold(square, n, kind, COMBINE["sum"]) / count, eps, kind)
    return lambda k: (read(k) - mean) * scale


def inverse_root(mean: b.Expr, eps: float, kind: str = "float32") -> b.Expr:
    """``1 / sqrt(mean + eps)``, both of its steps rounded to nearest."""
    return b.let(e.constant(1.0, kind) / T.sqrt(mean + e.constant(eps, kind)))
