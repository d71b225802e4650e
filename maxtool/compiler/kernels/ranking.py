"""The largest elements of a row, in order."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import builder as b
from maxtool.compiler.kernels import elements as e
from maxtool.compiler.kernels import requests as r
from maxtool.compiler.kernels.backend import Backend, RowThreads, shared_row
from maxtool.compiler.kernels.ordering import above, equal


def top_rows(backend: Backend, dtype: str, count: int) -> b.PrimFunc:
    """Build where the ``count`` largest elements of each row are, the largest first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, count] int64. Of equal elements the
    first comes first, and a NaN comes before every number. The row is read once for each of them.
    """
    computed = e.computed(dtype)
    with b.kernel(f"top_{count}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, count), "int64")

        def row(i: b.Expr, threads: RowThreads) -> None:
            last, before = b.cell(tirx.const(0, computed)), b.cell(b.integer(-1))
            first = threads.first(computed, lambda one, two: above(one, two, computed))

            def offer(k: b.Expr) -> None:
                value = b.let(backend.read(x, (i, k), dtype))
                same = tirx.all(equal(value, last.value, computed), k > before.value)
                below = above(last.value, value, computed)
                with b.when(tirx.any(before.value < 0, below, same)):
                    first.offer(value, k)

            with T.serial(b.integer(count)) as rank:
                first.clear()
                threads.each(n, offer)
                first.settle()
                last.set(first.value.value)
                before.set(first.place.value)
                with threads.once():
                    b.store(y, first.place.value, (i, rank))

        backend.each_row(rows, n, row, dtypes=(dtype,), work=count)
    return made.function


KERNELS: tuple[r.Row, ...] = (shared_row(r.TopRows)(top_rows),)
