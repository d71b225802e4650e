"""Elements and rows written by index on a GPU: a thread for each update.

Of several updates of one place the thread of the last writes, and adds up all of them where they
are added, so that sums do not depend on which thread comes first.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.rows import each_element


def scatter_elements(
    x: b.Buffer,
    updates: b.Buffer,
    place: Callable[[b.Expr, b.Expr], b.Expr],
    y: b.Buffer,
    *,
    adds: bool,
) -> None:
    """Write ``x`` and then its updates, each at ``place(row, number)`` of its row."""
    (rows, n), m = x.shape, updates.shape[1]
    _copy(x, y, rows, n)
    with each_element(rows, m) as (i, j):

        def of_row(k: b.Expr) -> b.Expr:
            return place(i, k)

        own = of_row(j)
        with b.when(tirx.all(own >= 0, own < n, _is_last(of_row, own, j, m))):
            value = _total(x, updates, (i, own), of_row, m) if adds else updates[i, j]
            b.store(y, value, (i, own))


def scatter_rows(x: b.Buffer, updates: b.Buffer, at: b.Buffer, y: b.Buffer) -> None:
    """Write ``x`` and then rows of ``updates``, each as row ``at[j]``."""
    (rows, block), m = x.shape, updates.shape[0]
    _copy(x, y, rows, block)
    with each_element(m, block) as (j, k):
        own = b.index(at[j])
        exists = tirx.all(own >= 0, own < rows)
        with b.when(tirx.all(exists, _is_last(lambda one: b.index(at[one]), own, j, m))):
            b.store(y, updates[j, k], (own, k))


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


def _is_last(place: Callable[[b.Expr], b.Expr], own: b.Expr, j: b.Expr, m: b.Expr) -> b.Expr:
    """Return whether no update after ``j`` goes to its place."""
    later = b.cell(j + 1)
    again = b.cell(tirx.const(False, "bool"))
    with T.While(tirx.all(later.value < m, tirx.Not(again.value))):
        again.set(place(later.value) == own)
        later.add(1)
    return tirx.Not(again.value)
