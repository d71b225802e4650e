"""One element out of every row, or a running sum along it."""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, Read, RowThreads, row_reader
from maxtool.compiler.kernels.element_order import COMBINE, leads

# Threads of a GPU that add up the elements of a row, each to those before it.
WARP = 32
# An exponential costs about as much as this many additions.
EXPONENTIAL = 16


def reduce_rows(backend: Backend, op: str, dtype: str) -> b.PrimFunc:
    """Build ``y[i] = op(x[i, :])`` for an ``op`` in ``COMBINE`` or in ``COMPOSED``.

    Parameters of the kernel: x[rows, n], y[rows], both of ``dtype``.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"{op}_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows,), e.storage_type(dtype))

        def row(i: b.Expr, threads: RowThreads) -> None:
            read = row_reader(backend, x, i, dtype)
            if op in COMPOSED:
                total = COMPOSED[op](backend, threads, read, n, computed)
            else:
                total = threads.fold(read, n, computed, COMBINE[op])
            with threads.once():
                backend.write(y, total, (i,), dtype)

        work = EXPONENTIAL if op == "logsumexp" else 1
        backend.each_row(rows, n, row, dtypes=(dtype,), work=work)
    return kernel.function


def _mean(_backend: Backend, threads: RowThreads, read: Read, n: b.Expr, computed: str) -> b.Expr:
    return threads.fold(read, n, computed, COMBINE["sum"]) / T.Cast(computed, n)


def _logsumexp(
    backend: Backend, threads: RowThreads, read: Read, n: b.Expr, computed: str
) -> b.Expr:
    """The row maximum and the logarithm of the sum relative to it; an infinite maximum alone."""
    row_maximum, total = exponential_sum(backend, threads, read, n, computed)
    infinite = T.abs(row_maximum) == e.constant(float("inf"), computed)
    return T.Select(infinite, row_maximum, row_maximum + T.log(total))


def exponential_sum(
    backend: Backend, threads: RowThreads, read: Read, n: b.Expr, computed: str
) -> tuple[b.Expr, b.Expr]:
    """Return the row maximum, and the sum of the exponentials of what elements are less it."""

    def power(k: b.Index, width: int) -> b.Expr:
        return backend.exp(read(k, width) - b.splat(row_maximum, width), computed, width)

    row_maximum = b.let(threads.fold(read, n, computed, COMBINE["max"]))
    return row_maximum, b.let(threads.fold(power, n, computed, COMBINE["sum"]))


# Reductions that are more than one fold.
COMPOSED: dict[str, Callable[[Backend, RowThreads, Read, b.Expr, str], b.Expr]] = {
    "logsumexp": _logsumexp,
    "mean": _mean,
}


def index_rows(backend: Backend, op: str, dtype: str) -> b.PrimFunc:
    """Build where the largest (argmax) or smallest (argmin) element of each row is.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows] int64; 0 for an empty row. The first
    of equal elements is meant, and a NaN comes before every number.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"{op}_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows,), "int64")

        def row(i: b.Expr, threads: RowThreads) -> None:
            first = threads.first(computed, lambda left, right: leads(op, left, right, computed))
            first.clear()
            threads.each(n, lambda k: first.offer(b.let(backend.read(x, (i, k), dtype)), k))
            first.settle()
            with threads.once():
                b.store(y, b.greatest(first.place.value, 0), (i,))

        backend.each_row(rows, n, row, dtypes=(dtype,))
    return kernel.function


def cumsum_rows(backend: Backend, dtype: str, exclusive: bool, reverse: bool) -> b.PrimFunc:
    """Build the running sums of each row.

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``.
    """
    with b.kernel(f"cumsum_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows, n), e.storage_type(dtype))

        def row(i: b.Expr, threads: RowThreads) -> None:
            def place(k: b.Expr) -> b.Expr:
                return b.index(n - 1 - k if reverse else k)

            def read(k: b.Expr) -> b.Expr:
                return backend.read(x, (i, place(k)), dtype)

            def write(k: b.Expr, before: b.Expr, after: b.Expr) -> None:
                backend.write(y, before if exclusive else after, (i, place(k)), dtype)

            threads.running_sums(n, read, write, e.compute_type(dtype))

        backend.each_row(rows, n, row, dtypes=(dtype,), group=WARP)
    return kernel.function
