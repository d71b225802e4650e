"""Rows of an embedding table that is packed like a linear weight, so that a tied head shares it."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.packing import packed_shape


def embedding(
    tile: RegisterTile, vocab: int, dim: int, weight_dtype: str, terms: int = 1
) -> b.PrimFunc:
    """Build the lookup.

    Parameters of the kernel: ids[rows] int64, w of ``packed_shape``, y[rows, dim] float32. An id
    below 0 or beyond the vocabulary reads the first or last row.
    """
    name = f"embedding_{vocab}_{dim}_{weight_dtype}{'_pairs' if terms > 1 else ''}"
    with b.kernel(name) as kernel:
        rows = kernel.dim("rows")
        ids = kernel.argument("ids", (rows,), "int64")
        shape = packed_shape(vocab, dim, tile.nr, terms)
        w = kernel.argument("w", shape, b.STORAGE[weight_dtype])
        y = kernel.argument("y", (rows, dim))

        def row(i: b.Expr) -> None:
            row_index = b.index(b.clamped(ids[i], vocab))
            block = b.index(b.quotient(row_index, tile.nr))
            column = b.index(b.remainder(row_index, tile.nr))
            for term in range(terms):
                with T.serial(b.integer(dim // terms + (term < dim % terms))) as step:
                    index = (block, step, column) if terms == 1 else (block, step, column, term)
                    value = b.load_weight(w, index, 1, weight_dtype)
                    b.store(y, value, (i, step * terms + term))

        b.each_row(rows, dim, row)
    return kernel.function
