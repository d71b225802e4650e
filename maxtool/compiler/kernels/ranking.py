"""The largest elements of a row, in order."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, RowThreads
from maxtool.compiler.kernels.element_order import above, equal


def top_rows(backend: Backend, dtype: str, count: int) -> b.PrimFunc:
    """Build where the ``count`` largest elements of each row are, the largest first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, count] int64. Of equal elements the
    first comes first, and a NaN comes before every number. The row is read once for each of them.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"top_{count}_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows, count), "int64")

        def row(i: b.Expr, threads: RowThreads) -> None:
            last, before = b.cell(tirx.const(0, computed)), b.cell(b.integer(-1))
            first = threads.first(computed, lambda left, right: above(left, right, computed))

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
    return kernel.function
