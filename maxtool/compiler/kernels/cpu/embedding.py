"""Rows of an embedding table that is packed like a linear weight, so that a tied head shares it."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b


def embedding(tile: RegisterTile, vocab: int, dim: int, weight_dtype: str) -> b.PrimFunc:
    """Build the lookup.

    Parameters of the kernel: ids[rows] int64, w[ceil(vocab / nr), dim, nr], y[rows, dim] float32.
    An id below 0 or beyond the vocabulary reads the first or last row.
    """
    with b.kernel(f"embedding_{vocab}_{dim}_{weight_dtype}") as kernel:
        rows = kernel.dim("rows")
        ids = kernel.argument("ids", (rows,), "int64")
        w = kernel.argument("w", (-(-vocab // tile.nr), dim, tile.nr), b.STORAGE[weight_dtype])
        y = kernel.argument("y", (rows, dim))

        def row(i: b.Expr) -> None:
            row_index = b.index(b.clamped(ids[i], vocab))
            block = b.index(b.quotient(row_index, tile.nr))
            column = b.index(b.remainder(row_index, tile.nr))
            with T.serial(b.integer(dim)) as d:
                b.store(y, b.load_weight(w, (block, d, column), 1, weight_dtype), (i, d))

        b.each_row(rows, dim, row)
    return kernel.function
