"""Softmax and normalization of rows of any length and floating-point type."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, Read, RowThreads, row_reader
from maxtool.compiler.kernels.element_order import COMBINE
from maxtool.compiler.kernels.reduction import exponential_sum

# Operations on an element of a row that take an exponential or are swept several times.
HEAVY = 16


def softmax_rows(backend: Backend, op: str, dtype: str) -> b.PrimFunc:
    """Build ``exp(x - max) / sum(exp(x - max))`` of each row, or its logarithm (logsoftmax).

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"{op}_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows, n), e.storage_type(dtype))

        def row(i: b.Expr, threads: RowThreads) -> None:
            read = row_reader(backend, x, i, dtype)

            def finish(k: b.Index, width: int) -> None:
                below = b.let(read(k, width) - b.splat(row_maximum, width))
                if log is None:
                    value = backend.exp(below, computed, width) / b.splat(total, width)
                else:
                    value = below - b.splat(log, width)
                backend.write(y, value, (i, k), dtype, width)

            row_maximum, total = exponential_sum(backend, threads, read, n, computed)
            log = b.let(T.log(total)) if op == "logsoftmax" else None
            threads.each_vector(n, finish)

        backend.each_row(rows, n, row, dtypes=(dtype,), work=HEAVY)
    return kernel.function


def l2_norm_rows(backend: Backend, dtype: str, eps: float) -> b.PrimFunc:
    """Build ``x / sqrt(sum(x**2) + eps)`` of each row.

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"l2_norm_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows, n), e.storage_type(dtype))

        def row(i: b.Expr, threads: RowThreads) -> None:
            read = row_reader(backend, x, i, dtype)

            def finish(k: b.Index, width: int) -> None:
                backend.write(y, read(k, width) * b.splat(scale, width), (i, k), dtype, width)

            scale = inverse_root(_sum_of_squares(read, threads, n, computed), eps, computed)
            threads.each_vector(n, finish)

        backend.each_row(rows, n, row, dtypes=(dtype,), work=HEAVY)
    return kernel.function


def layer_norm_rows(backend: Backend, dtype: str, weight: str, eps: float, out: str) -> b.PrimFunc:
    """Build ``(x - mean) / sqrt(variance + eps) * gamma + beta`` of each row.

    Parameters of the kernel: x[rows, n] of ``dtype``, gamma[n] and beta[n] of type ``weight``,
    y[rows, n] of type ``out``.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"layer_norm_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        gamma, beta = (
            kernel.argument(name, (n,), e.storage_type(weight)) for name in ("gamma", "beta")
        )
        y = kernel.argument("y", (rows, n), e.storage_type(out))

        def row(i: b.Expr, threads: RowThreads) -> None:
            read = row_reader(backend, x, i, dtype)

            def finish(k: b.Index, width: int) -> None:
                scale, shift = (
                    e.converted(backend.read(one, (k,), weight, width), weight, computed, width)
                    for one in (gamma, beta)
                )
                value = normal(k, width) * scale + shift
                backend.write(y, value, (i, k), out, width)

            normal = _normal(read, threads, n, eps, computed)
            threads.each_vector(n, finish)

        backend.each_row(rows, n, row, dtypes=(dtype,), work=HEAVY)
    return kernel.function


def group_norm_rows(
    backend: Backend, dtype: str, weight: str, eps: float, groups: int, channels: int
) -> b.PrimFunc:
    """Build the normalization of each group, and the scale and shift of each channel.

    Parameters of the kernel: x[rows, n] of ``dtype``, a row for each group of each example, its
    channels one after the other; gamma[channels] and beta[channels] of type ``weight``; y like x.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"group_norm_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        gamma = kernel.argument("gamma", (channels,), e.storage_type(weight))
        beta = kernel.argument("beta", (channels,), e.storage_type(weight))
        y = kernel.argument("y", (rows, n), e.storage_type(dtype))
        own = channels // groups

        def row(i: b.Expr, threads: RowThreads) -> None:
            read = row_reader(backend, x, i, dtype)

            def affine(channel: b.Expr) -> list[b.Expr]:
                at = b.index(first + channel)
                return [
                    e.converted(backend.read(one, (at,), weight), weight, computed)
                    for one in (gamma, beta)
                ]

            def finish(k: b.Index, width: int, scale: b.Expr, shift: b.Expr) -> None:
                value = normal(k, width) * b.splat(scale, width) + b.splat(shift, width)
                backend.write(y, value, (i, k), dtype, width)

            normal = _normal(read, threads, n, eps, computed)
            size = b.index(b.quotient(n, own))
            first = b.index(b.remainder(i, groups) * own)
            threads.each_group(own, size, affine, finish)

        backend.each_row(rows, n, row, dtypes=(dtype,), work=HEAVY)
    return kernel.function


def rms_norm_rows(
    backend: Backend,
    dtype: str,
    weight: str,
    eps: float,
    offset: float,
    round_first: bool,
    out: str | None = None,
) -> b.PrimFunc:
    """Build ``x / sqrt(mean(x**2) + eps) * (w + offset)`` of each row.

    Parameters of the kernel: x[rows, n] of ``dtype``, w[n] of type ``weight``, y[rows, n] of type
    ``out``, or else ``dtype``. With ``round_first`` both factors are rounded to ``dtype`` before
    they are multiplied.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"rms_norm_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        w = kernel.argument("w", (n,), e.storage_type(weight))
        y = kernel.argument("y", (rows, n), e.storage_type(out or dtype))

        def row(i: b.Expr, threads: RowThreads) -> None:
            def read(k: b.Index, width: int) -> b.Expr:
                return b.let(backend.read(x, (i, k), dtype, width))

            def square(k: b.Index, width: int) -> b.Expr:
                value = read(k, width)
                return value * value

            def finish(k: b.Index, width: int) -> None:
                normal = read(k, width) * b.splat(scale, width)
                factor = e.converted(backend.read(w, (k,), weight, width), weight, computed, width)
                factor = factor + e.constant(offset, computed, width)
                if round_first:
                    normal = backend.rounded(normal, dtype, width)
                    factor = backend.rounded(factor, dtype, width)
                backend.write(y, normal * factor, (i, k), out or dtype, width)

            total = threads.fold(square, n, computed, COMBINE["sum"])
            scale = inverse_root(total / T.Cast(computed, n), eps, computed)
            threads.each_vector(n, finish)

        backend.each_row(rows, n, row, dtypes=(dtype,), work=HEAVY)
    return kernel.function


def _normal(read: Read, threads: RowThreads, n: b.Expr, eps: float, computed: str) -> Read:
    """Elements of a row less their mean, over the root of their variance and ``eps``."""

    def centred(k: b.Index, width: int) -> b.Expr:
        return read(k, width) - b.splat(mean, width)

    count = T.Cast(computed, n)
    mean = b.let(threads.fold(read, n, computed, COMBINE["sum"]) / count)
    variance = _sum_of_squares(centred, threads, n, computed) / count
    scale = inverse_root(variance, eps, computed)
    return lambda k, width: centred(k, width) * b.splat(scale, width)


def _sum_of_squares(read: Read, threads: RowThreads, n: b.Expr, computed: str) -> b.Expr:
    def square(k: b.Index, width: int) -> b.Expr:
        value = b.let(read(k, width))
        return value * value

    return threads.fold(square, n, computed, COMBINE["sum"])


def inverse_root(mean: b.Expr, eps: float, dtype: str = "float32") -> b.Expr:
    """``1 / sqrt(mean + eps)``, both of its steps rounded to nearest."""
    return b.let(e.constant(1.0, dtype) / T.sqrt(mean + e.constant(eps, dtype)))
