"""Elements and rows written by index on a CPU: the updates of a row one after the other."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b


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

    def row(i: b.Expr) -> None:
        with T.serial(n) as j:
            b.store(y, x[i, j], (i, j))
        with T.serial(m) as j:
            own = place(i, j)
            with b.when(tirx.all(own >= b.integer(0), own < n)):
                value = y[i, own] + updates[i, j] if adds else updates[i, j]
                b.store(y, value, (i, own))

    b.each_row(rows, n + m, row)


def scatter_rows(x: b.Buffer, updates: b.Buffer, at: b.Buffer, y: b.Buffer) -> None:
    """Write ``x`` and then rows of ``updates``, each as row ``at[j]``."""
    (rows, block), m = x.shape, updates.shape[0]

    def copied(i: b.Expr) -> None:
        with T.serial(block) as k:
            b.store(y, x[i, k], (i, k))

    b.each_row(rows, block, copied)
    with T.serial(m) as j:
        exists = tirx.all(at[j] >= b.integer(0), at[j] < rows)
        with b.when(exists), T.serial(block) as k:
            b.store(y, updates[j, k], (at[j], k))
