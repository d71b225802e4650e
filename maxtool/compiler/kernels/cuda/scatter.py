"""Elements written, or added, to places that a tensor says: a thread for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda.rows import each_element


def scatter_rows(dtype: str, places: str, adds: bool = False) -> b.PrimFunc:
    """Build ``y = x`` with ``y[i, at[i, j]] = updates[i, j]``, or ``+=``.

    Parameters of the kernel: x[rows, n], updates[rows, m], at[rows, m], y[rows, n]. A negative
    place counts from the last element; one that does not exist is left out. Of several updates of
    one place the last stays, or all are added in their order: the thread of the last adds them, so
    that sums do not depend on which thread comes first.

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
        _copy(x, y, rows, n)
        with each_element(rows, m) as (i, j):

            def place(k: b.Expr) -> b.Expr:
                return b.index(b.from_first(at[i, k], n, places))

            own = place(j)
            with b.when(tirx.all(own >= 0, own < n, _is_last(place, own, j, m))):
                value = _total(x, updates, (i, own), place, m) if adds else updates[i, j]
                b.store(y, value, (i, own))
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
        _copy(x, y, rows, block)
        with each_element(m, block) as (j, k):
            own = b.index(at[j])
            exists = tirx.all(own >= 0, own < rows)
            with b.when(tirx.all(exists, _is_last(lambda one: b.index(at[one]), own, j, m))):
                b.store(y, updates[j, k], (own, k))
    return made.function


def _copy(x: b.Buffer, y: b.Buffer, *sizes: b.Expr) -> None:
    """Launch the copy of all elements; what is launched after it finds them."""
    with each_element(*sizes) as places:
        b.store(y, x[tuple(places)], places)


def _total(
    x: b.Buffer,
    updates: b.Buffer,
    at: tuple[b.Expr, b.Expr],
    place: Callable[[b.Expr], b.Expr],
    m: b.Expr,
) -> b.Expr:
    """An element, and in their order all of the ``m`` updates of its row that go there."""
    row, own = at
    total = b.cell(x[row, own])
    with T.serial(m) as k, b.when(place(k) == own):
        total.add(updates[row, k])
    return total.value


def _is_last(place: Any, own: b.Expr, j: b.Expr, m: b.Expr) -> b.Expr:  # noqa: ANN401
    """Whether no update after ``j`` goes to its place."""
    later = b.cell(j + 1)
    again = b.cell(tirx.const(False, "bool"))
    with T.While(tirx.all(later.value < m, tirx.Not(again.value))):
        again.set(place(later.value) == own)
        later.add(1)
    return tirx.Not(again.value)
