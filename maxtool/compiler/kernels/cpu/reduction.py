"""One element out of every row, or a running sum along it.

The loops over a row may run no time at all, so what they start from is stored before them.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.ordering import COMBINE, Fold, leads


def reduce_rows(lanes: int, op: str, dtype: str) -> b.PrimFunc:
    """Build ``y[i] = op(x[i, :])``.

    Parameters of the kernel: x[rows, n], y[rows], both of ``dtype``.

    Args:
        lanes: float32 elements of a vector.
        op: A name in ``COMBINE``, or mean.
        dtype: The element type, by name.
    """
    how = COMBINE["sum" if op == "mean" else op]
    lanes, kind = e.lanes_of(dtype, lanes), e.computed(dtype)
    with b.kernel(f"{op}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows,), e.stored(dtype))

        def row(i: b.Expr) -> None:
            def read(k: b.Index, width: int) -> b.Expr:
                return e.read(x, (i, k), width, dtype)

            total = fold_row(read, n, lanes, kind, how)
            if op == "mean":
                total = total / T.Cast(kind, n)
            e.write(y, total, (i,), 1, dtype)

        b.each_row(rows, n, row)
    return made.function


def fold_row(
    read: Callable[[b.Index, int], b.Expr],
    n: b.Expr,
    lanes: int,
    kind: str,
    how: Fold,
) -> b.Expr:
    """All elements of a row combined into one.

    Args:
        lanes: Elements of a vector.
        read: The ``w`` elements from ``k`` on.
        n: How many there are.
        kind: The type they are computed with.
        how: What makes one of two elements, or of vectors of them, and what it starts from.
    """
    combine, neutral = how
    total = b.cell(neutral(kind))
    whole = b.index(b.quotient(n, lanes)) if lanes > 1 else b.integer(0)
    if lanes > 1:
        sums = b.scratch((lanes,), kind)
        b.store(sums, T.broadcast(neutral(kind), lanes), (0,), lanes)
        with T.serial(whole) as j:
            value = b.let(read(j * lanes, lanes))
            b.store(sums, combine(b.load(sums, (0,), lanes), value), (0,), lanes)
        total.set(b.fold(b.load(sums, (0,), lanes), lanes, combine))
    with T.serial(b.index(whole * lanes), n) as k:
        total.set(combine(total.value, b.let(read(k, 1))))
    return total.value


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

        def row(i: b.Expr) -> None:
            best, place = b.cell(dtype=kind), b.cell(dtype="int64")
            place.set(b.integer(0))
            with T.serial(n) as k:
                value = b.let(e.read(x, (i, k), 1, dtype))
                with b.when(tirx.any(k == 0, leads(op, value, best.value, kind))):
                    best.set(value)
                    place.set(k)
            b.store(y, place.value, (i,))

        b.each_row(rows, n, row)
    return made.function


def cumsum_rows(dtype: str, exclusive: bool, reverse: bool) -> b.PrimFunc:
    """Build the running sums of each row.

    Parameters of the kernel: x[rows, n], y[rows, n], both of ``dtype``.
    """
    kind = e.computed(dtype)
    with b.kernel(f"cumsum_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, n), e.stored(dtype))

        def row(i: b.Expr) -> None:
            total = b.cell(tirx.const(0, kind))
            with T.serial(n) as step:
                k = b.index(n - 1 - step if reverse else step)
                before = b.let(total.value)
                total.set(before + e.read(x, (i, k), 1, dtype))
                e.write(y, before if exclusive else total.value, (i, k), 1, dtype)

        b.each_row(rows, n, row)
    return made.function
