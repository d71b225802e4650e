"""Rows of an embedding table, which is packed like a linear weight where a tied head shares it."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.packing import packed_shape


def embedding(
    tile: RegisterTile, vocab: int, dim: int, weight_dtype: str, block: int, terms: int = 1
) -> b.PrimFunc:
    """Build the lookup.

    Parameters of the kernel: ids[rows] int64, w of ``packed_shape`` with ``block`` rows of the
    table side by side, y[rows, dim] float32. An id below 0 or beyond the vocabulary reads the first
    or last row.
    """
    name = f"embedding_{vocab}_{dim}_{weight_dtype}{'_pairs' if terms > 1 else ''}"
    with b.kernel(name) as kernel:
        rows = kernel.dim("rows")
        ids = kernel.argument("ids", (rows,), "int64")
        shape = packed_shape(vocab, dim, block, terms)
        w = kernel.argument("w", shape, b.STORAGE[weight_dtype])
        y = kernel.argument("y", (rows, dim))

        def copy(i: b.Expr, row_index: b.Expr, at: b.Index, width: int) -> None:
            value = b.load_weight(w, (row_index, at, 0), width, weight_dtype)
            b.store(y, value, (i, at), width)

        def row(i: b.Expr) -> None:
            row_index = b.index(b.clamped(ids[i], vocab))
            if block == terms == 1:
                b.each_vector(dim, tile.width, lambda at, width: copy(i, row_index, at, width))
                return
            first = b.index(b.quotient(row_index, block))
            column = b.index(b.remainder(row_index, block))
            for term in range(terms):
                with T.serial(b.integer(dim // terms + (term < dim % terms))) as step:
                    index = (first, step, column) if terms == 1 else (first, step, column, term)
                    value = b.load_weight(w, index, 1, weight_dtype)
                    b.store(y, value, (i, step * terms + term))

        b.each_row(rows, dim, row)
    return kernel.function
