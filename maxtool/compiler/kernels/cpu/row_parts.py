"""Rows joined of the rows of several tensors, and parts of rows: copies of neighbours."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b


def join_rows(tile: RegisterTile, dtype: str, widths: tuple[int, ...]) -> b.PrimFunc:
    """Build the copy of rows one behind the other.

    Parameters of the kernel: x0[rows, width], ... of each of the ``widths``, y[rows, their sum],
    all of ``dtype``.
    """
    with b.kernel(f"join_{dtype}_{'_'.join(map(str, widths))}") as kernel:
        rows, whole = kernel.dim("rows"), sum(widths)
        tensors = [kernel.argument(f"x{i}", (rows, n), dtype) for i, n in enumerate(widths)]
        y = kernel.argument("y", (rows, whole), dtype)
        firsts = [0, *accumulate(widths[:-1])]

        def row(i: b.Expr) -> None:
            for x, first, width in zip(tensors, firsts, widths, strict=True):
                _copy(tile, (x, i, 0), (y, i, first), width)

        b.each_row(rows, whole, row)
    return kernel.function


def cut_rows(tile: RegisterTile, dtype: str, width: int, first: int, count: int) -> b.PrimFunc:
    """Build the copy of ``count`` elements of each row, from the ``first`` on.

    Parameters of the kernel: x[rows, width], y[rows, count], both of ``dtype``.
    """
    with b.kernel(f"cut_{dtype}_{width}_{first}_{count}") as kernel:
        rows = kernel.dim("rows")
        x = kernel.argument("x", (rows, width), dtype)
        y = kernel.argument("y", (rows, count), dtype)
        b.each_row(rows, count, lambda i: _copy(tile, (x, i, first), (y, i, 0), count))
    return kernel.function


def _copy(
    tile: RegisterTile,
    source: tuple[b.Buffer, b.Expr, int],
    target: tuple[b.Buffer, b.Expr, int],
    count: int,
) -> None:
    """Copy neighbours from a place of a row to one of another."""
    (x, i, at), (y, j, to) = source, target
    lanes = tile.width * 4 // np.dtype(str(x.dtype)).itemsize

    def part(offset: b.Index, width: int) -> None:
        b.store(y, b.load(x, (i, at + offset), width), (j, to + offset), width)

    b.each_vector(count, lanes, part)
