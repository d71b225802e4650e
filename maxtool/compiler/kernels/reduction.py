"""One element out of every row, or a running sum along it."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import builder as b
from maxtool.compiler.kernels import elements as e
from maxtool.compiler.kernels.backend import Backend, RowThreads
from maxtool.compiler.kernels.ordering import COMBINE, leads

# Threads of a GPU that add up the elements of a row, each to those before it.
WARP = 32


def reduce_rows(backend: Backend, op: str, dtype: str) -> b.PrimFunc:
    """Build ``y[i] = op(x[i, :])``.

    Parameters of the kernel: x[rows, n], y[rows], both of ``dtype``.

    Args:
        backend: The target's.
        op: A name in ``COMBINE``, or mean.
        dtype: The element type, by name.
    """
    how = COMBINE["sum" if op == "mean" else op]
    computed = e.computed(dtype)
    with b.kernel(f"{op}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows,), e.stored(dtype))

        def row(i: b.Expr, threads: RowThreads) -> None:
            def read(k: b.Index, width: int) -> b.Expr:
                return backend.read(x, (i, k), dtype, width)

            total = threads.fold(read, n, computed, how)
            if op == "mean":
                total = total / T.Cast(computed, n)
            with threads.once():
                backend.write(y, total, (i,), dtype)

        backend.each_row(rows, n, row, dtypes=(dtype,))
    return made.function


def index_rows(backend: Backend, op: str, dtype: str) -> b.PrimFunc:
    """Build where the largest (argmax) or smallest (argmin) element of each row is.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows] int64; 0 for an empty row. The first
    of equal elements is meant, and a NaN comes before every number.
    """
    computed = e.computed(dtype)
    with b.kernel(f"{op}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows,), "int64")

        def row(i: b.Expr, threads: RowThreads) -> None:
            first = threads.first(computed, lambda one, two: leads(op, one, two, computed))
            first.clear()
            threads.each(n, lambda k: first.offer(b.let(backend.read(x, (i, k), dtype)), k))
            first.settle()
            with threads.once():
                b.store(y, b.greatest(first.place.value, 0), (i,))

        backend.each_row(rows, n, row, dtypes=(dtype,))
    return made.function


def cumsum_rows(backend: Backend, dtype: str, exclusive: bool, reverse: bool) -> b.PrimFunc:
    """Build the running sums of each row.

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``.
    """
    with b.kernel(f"cumsum_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, n), e.stored(dtype))

        def row(i: b.Expr, threads: RowThreads) -> None:
            def place(k: b.Expr) -> b.Expr:
                return b.index(n - 1 - k if reverse else k)

            def read(k: b.Expr) -> b.Expr:
                return backend.read(x, (i, place(k)), dtype)

            def write(k: b.Expr, before: b.Expr, after: b.Expr) -> None:
                backend.write(y, before if exclusive else after, (i, place(k)), dtype)

            threads.running_sums(n, read, write, e.computed(dtype))

        backend.each_row(rows, n, row, dtypes=(dtype,), group=WARP)
    return made.function
