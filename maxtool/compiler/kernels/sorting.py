"""The order of the elements of a row, by merging runs that are in order."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, RowThreads
from maxtool.compiler.kernels.element_order import above, equal

THREADS = 256  # of a GPU, for a row
WORK = 16  # of an element: comparisons, each two reads


def sorted_places(backend: Backend, dtype: str, ascending: bool) -> b.PrimFunc:
    """Build where the elements of each row are in order, the first of equal ones first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, n] int64. NaN is above every number.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"argsort_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows, n), "int64")
        merged = b.workspace((rows, n), "int64")

        def row(i: b.Expr, threads: RowThreads) -> None:
            def before(left: b.Expr, right: b.Expr, or_equal: b.Expr) -> b.Expr:
                """Return whether the element at one place comes before that at another."""
                first, second = (b.let(backend.read(x, (i, at), dtype)) for at in (left, right))
                pair = (second, first) if ascending else (first, second)
                same = tirx.all(or_equal, equal(first, second, computed))
                return tirx.any(above(*pair, computed), same)

            def write(k: b.Expr, place: b.Expr) -> None:
                b.store(merged, place, (i, k))

            threads.each(n, lambda k: b.store(y, k, (i, k)))
            run = b.cell(b.integer(1))
            with T.While(run.value < n):
                threads.barrier()
                threads.merge_runs(n, run.value, lambda k: b.index(y[i, k]), write, before)
                threads.barrier()
                threads.each(n, lambda k: b.store(y, merged[i, k], (i, k)))
                run.set(run.value * 2)

        backend.each_row(rows, n, row, dtypes=(), work=WORK, group=THREADS)
    return kernel.function
