"""One element out of every row, or a running sum along it."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda.leading import Leader
from maxtool.compiler.kernels.cuda.rows import Team, each_row
from maxtool.compiler.kernels.ordering import COMBINE, leads


def reduce_rows(op: str, dtype: str) -> b.PrimFunc:
    """Build ``y[i] = op(x[i, :])``.

    Parameters of the kernel: x[rows, n], y[rows], both of ``dtype``.

    Args:
        op: A name in ``COMBINE``, or mean.
        dtype: The element type, by name.
    """
    how = COMBINE["sum" if op == "mean" else op]
    kind = e.computed(dtype)
    with b.kernel(f"{op}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows,), e.stored(dtype))

        def row(i: b.Expr, team: Team) -> None:
            total = team.fold(lambda k: e.read(x, (i, k), dtype), n, kind, how)
            if op == "mean":
                total = total / T.Cast(kind, n)
            with b.when(team.lane == 0):
                e.write(y, total, (i,), dtype)

        each_row(rows, n, row)
    return made.function


def index_rows(op: str, dtype: str) -> b.PrimFunc:
    """Build where the largest (argmax) or smallest (argmin) element of each row is.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows] int64; 0 for an empty row. The first
    of equal elements is meant, and a NaN comes before every number.
    """
    kind = e.computed(dtype)
    with b.kernel(f"{op}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows,), "int64")

        def row(i: b.Expr, team: Team) -> None:
            leader = Leader(team, kind, lambda one, two: leads(op, one, two, kind))
            leader.clear()
            team.each(n, lambda k: leader.offer(b.let(e.read(x, (i, k), dtype)), k))
            leader.settle()
            with b.when(team.lane == 0):
                b.store(y, b.greatest(leader.place[0], 0), (i,))

        each_row(rows, n, row)
    return made.function


def cumsum_rows(dtype: str, exclusive: bool, reverse: bool) -> b.PrimFunc:
    """Build the running sums of each row.

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``. A warp adds up 32 elements
    at a time, each to those before it.
    """
    kind = e.computed(dtype)
    zero = tirx.const(0, kind)
    with b.kernel(f"cumsum_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, n), e.stored(dtype))
        with b.launch([rows], b.WARP) as (i, lane):
            total = b.cell(zero)
            with T.serial(b.index(b.ceildiv(n, b.WARP))) as step:
                k = b.index(step * b.WARP + T.Cast("int64", lane))
                at = b.index(n - 1 - k if reverse else k)
                own = b.cell(zero)
                with b.when(k < n):
                    own.set(e.read(x, (i, at), dtype))
                ahead = b.warp_scan(own.value, lane, kind)
                before = b.let(total.value + ahead)
                after = b.let(before + own.value)
                with b.when(k < n):
                    e.write(y, before if exclusive else after, (i, at), dtype)
                total.set(b.warp_value(after, b.WARP - 1))
    return made.function
