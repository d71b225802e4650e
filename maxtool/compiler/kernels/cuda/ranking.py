"""The largest elements of a row, in order, and the order of all elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda.leading import Leader
from maxtool.compiler.kernels.cuda.rows import THREADS, Team, each_row
from maxtool.compiler.kernels.ordering import above, equal


def top_rows(dtype: str, count: int) -> Any:  # noqa: ANN401
    """Build where the ``count`` largest elements of each row are, the largest first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, count] int64. Of equal elements the
    first comes first, and a NaN comes before every number. The row is read once for each of them.
    """
    kind = e.computed(dtype)
    with b.kernel(f"top_{count}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, count), "int64")

        def row(i: b.Expr, team: Team) -> None:
            last, before = b.scratch((1,), kind), b.scratch((1,), "int64")
            b.store(last, tirx.const(0, kind), (0,), 1)
            b.store(before, b.integer(-1), (0,), 1)
            leader = Leader(team, kind, lambda one, two: above(one, two, kind))

            def offer(k: b.Expr) -> None:
                value = b.let(e.read(x, (i, k), dtype), 1, kind)
                same = tirx.all(equal(value, last[0], kind), k > before[0])
                with b.when(tirx.any(before[0] < 0, above(last[0], value, kind), same)):
                    leader.offer(value, k)

            with T.serial(b.integer(count)) as rank:
                leader.clear()
                team.each(n, offer)
                leader.settle()
                b.store(last, leader.value[0], (0,), 1)
                b.store(before, leader.place[0], (0,), 1)
                with b.when(team.lane == 0):
                    b.store(y, leader.place[0], (i, rank), 1)

        each_row(rows, n, row)
    return made.function


def sorted_places(dtype: str, ascending: bool) -> Any:  # noqa: ANN401
    """Build where the elements of each row are in order, the first of equal ones first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, n] int64. NaN is above every number.

    A block merges runs that are in order: each element finds its place among those of the run
    beside its own by halving.
    """
    kind = e.computed(dtype)
    with b.kernel(f"argsort_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, n), "int64")
        merged = b.workspace((rows, n), "int64")
        with b.launch([rows], THREADS) as (i, thread):
            team = Team(thread, THREADS)

            def before(one: b.Expr, two: b.Expr, or_equal: b.Expr) -> b.Expr:
                """Whether the element at one place comes before that at another."""
                first, second = (b.let(e.read(x, (i, at), dtype), 1, kind) for at in (one, two))
                ahead = above(second, first, kind) if ascending else above(first, second, kind)
                return tirx.any(ahead, tirx.all(or_equal, equal(first, second, kind)))

            team.each(n, lambda k: b.store(y, k, (i, k), 1))
            run = b.scratch((1,), "int64")
            b.store(run, b.integer(1), (0,), 1)
            with T.While(run[0] < n):
                b.barrier()
                team.each(n, lambda k: _merge(y, merged, (i, k, run[0], n), before))
                b.barrier()
                team.each(n, lambda k: b.store(y, merged[i, k], (i, k), 1))
                b.store(run, run[0] * 2, (0,), 1)
    return made.function


def _merge(
    y: b.Buffer,
    merged: b.Buffer,
    where: tuple[b.Expr, b.Expr, b.Expr, b.Expr],
    before: Callable[[b.Expr, b.Expr, b.Expr], b.Expr],
) -> None:
    """Put element k of row i where it belongs in its run and the one beside it."""
    i, k, run, n = where
    start = b.index(b.quotient(k, 2 * run) * (2 * run))
    middle, end = b.index(b.least(start + run, n)), b.index(b.least(start + 2 * run, n))
    left = b.let(k < middle, 1, "bool")
    own = b.index(y[i, k])
    first = b.index(tirx.Select(left, middle, start))
    low, high = b.scratch((1,), "int64"), b.scratch((1,), "int64")
    b.store(low, first, (0,), 1)
    b.store(high, tirx.Select(left, end, middle), (0,), 1)
    with T.While(low[0] < high[0]):
        half = b.index(b.quotient(low[0] + high[0], 2))
        other = b.index(y[i, half])
        # Of equal ones those of the left run come first.
        b.either(
            before(other, own, tirx.Not(left)),
            lambda: b.store(low, half + 1, (0,), 1),
            lambda: b.store(high, half, (0,), 1),
        )
    mine = b.index(k - tirx.Select(left, start, middle))
    b.store(merged, own, (i, start + mine + low[0] - first), 1)
