"""The order of the elements of a row, by merging runs that are in order."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda.rows import THREADS, ThreadGroup
from maxtool.compiler.kernels.element_order import above, equal


def sorted_places(dtype: str, ascending: bool) -> b.PrimFunc:
    """Build where the elements of each row are in order, the first of equal ones first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, n] int64. NaN is above every number.

    A block merges runs that are in order: each element finds its place among those of the run
    beside its own by halving.
    """
    kind = e.compute_type(dtype)
    with b.kernel(f"argsort_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows, n), "int64")
        merged = b.workspace((rows, n), "int64")
        with b.launch([rows], THREADS) as (i, thread):
            threads = ThreadGroup(thread, THREADS)

            def before(left: b.Expr, right: b.Expr, or_equal: b.Expr) -> b.Expr:
                """Return whether the element at one place comes before that at another."""
                first, second = (b.let(e.read(x, (i, at), dtype)) for at in (left, right))
                ahead = above(second, first, kind) if ascending else above(first, second, kind)
                return tirx.any(ahead, tirx.all(or_equal, equal(first, second, kind)))

            threads.each(n, lambda k: b.store(y, k, (i, k)))
            run = b.cell(b.integer(1))
            with T.While(run.value < n):
                b.barrier()
                threads.each(n, lambda k: _merge(y, merged, (i, k, run.value, n), before))
                b.barrier()
                threads.each(n, lambda k: b.store(y, merged[i, k], (i, k)))
                run.set(run.value * 2)
    return kernel.function


def _merge(
    y: b.Buffer,
    merged: b.Buffer,
    where: tuple[b.Expr, b.Expr, b.Expr, b.Expr],
    before: Callable[[b.Expr, b.Expr, b.Expr], b.Expr],
) -> None:
    """Insert element k of row i where it belongs in its run merged with the next."""
    i, k, run, n = where
    start = b.index(b.quotient(k, 2 * run) * (2 * run))
    middle, end = b.index(b.least(start + run, n)), b.index(b.least(start + 2 * run, n))
    left = b.let(k < middle)
    own = b.index(y[i, k])
    first = b.index(tirx.Select(left, middle, start))
    low, high = b.cell(first), b.cell(tirx.Select(left, end, middle))
    with T.While(low.value < high.value):
        half = b.index(b.quotient(low.value + high.value, 2))
        other = b.index(y[i, half])
        # Of equal ones those of the left run come first.
        b.either(
            before(other, own, tirx.Not(left)),
            lambda: low.set(half + 1),
            lambda: high.set(half),
        )
    mine = b.index(k - tirx.Select(left, start, middle))
    b.store(merged, own, (i, start + mine + low.value - first))
