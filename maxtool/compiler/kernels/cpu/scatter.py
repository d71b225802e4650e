"""Elements written, or added, to places that a tensor says."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e


def scatter_rows(dtype: str, places: str, adds: bool = False) -> b.PrimFunc:
    """Build ``y = x`` with ``y[i, at[i, j]] = updates[i, j]``, or ``+=``.

    Parameters of the kernel: x[rows, n], updates[rows, m], at[rows, m], y[rows, n]. A negative
    place counts from the last element; one that does not exist is left out. Of several updates of
    one place the last stays, or all are added in their order.

    Args:
        dtype: The element type; one that is computed in, if updates are added.
        places: That of the places.
        adds: Whether they are.
    """
    kind = e.stored(dtype)
    with b.kernel(f"scatter_{'add_' if adds else ''}{dtype}") as made:
        rows, n, m = (made.dim(name) for name in ("rows", "n", "m"))
        x = made.argument("x", (rows, n), kind)
        updates = made.argument("updates", (rows, m), kind)
        at = made.argument("at", (rows, m), places)
        y = made.argument("y", (rows, n), kind)

        def row(i: b.Expr) -> None:
            with T.serial(n) as j:
                b.store(y, x[i, j], (i, j))
            with T.serial(m) as j:
                counted = b.index(b.from_first(at[i, j], n, places))
                with b.when(tirx.all(counted >= b.integer(0), counted < n)):
                    value = y[i, counted] + updates[i, j] if adds else updates[i, j]
                    b.store(y, value, (i, counted))

        b.each_row(rows, n + m, row)
    return made.function


def scatter_blocks(dtype: str) -> b.PrimFunc:
    """Build ``y = x`` with ``y[at[j], :] = updates[j, :]``.

    Parameters of the kernel: x[rows, block], updates[m, block], at[m] int64, y[rows, block]. A row
    that does not exist is left out; of several updates of one row the last stays.
    """
    kind = e.stored(dtype)
    with b.kernel(f"scatter_blocks_{dtype}") as made:
        rows, block, m = (made.dim(name) for name in ("rows", "block", "m"))
        x = made.argument("x", (rows, block), kind)
        updates = made.argument("updates", (m, block), kind)
        at = made.argument("at", (m,), "int64")
        y = made.argument("y", (rows, block), kind)

        def copied(i: b.Expr) -> None:
            with T.serial(block) as k:
                b.store(y, x[i, k], (i, k))

        b.each_row(rows, block, copied)
        with T.serial(m) as j:
            exists = tirx.all(at[j] >= b.integer(0), at[j] < rows)
            with b.when(exists), T.serial(block) as k:
                b.store(y, updates[j, k], (at[j], k))
    return made.function
