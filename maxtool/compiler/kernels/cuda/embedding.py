"""Rows of an embedding table."""

from __future__ import annotations

from maxtool.compiler.kernels.cuda import builder as b

THREADS = 256
STEPS = 4  # elements of a thread


def embedding(vocab: int, dim: int, weight_dtype: str) -> b.PrimFunc:
    """Build the lookup.

    Parameters of the kernel: ids[rows] int64, w[vocab, dim], y[rows, dim] float32. An id below 0 or
    beyond the vocabulary reads the first or last row.
    """
    parts = -(-dim // (THREADS * STEPS))
    with b.kernel(f"embedding_{vocab}_{dim}_{weight_dtype}") as kernel:
        rows = kernel.dim("rows")
        ids = kernel.argument("ids", (rows,), "int64")
        w = kernel.argument("w", (vocab, dim), b.STORAGE[weight_dtype])
        y = kernel.argument("y", (rows, dim))
        with b.launch([rows * parts], THREADS) as (block, thread):
            row = b.index(b.quotient(block, parts))
            first = b.index((block - row * parts) * (THREADS * STEPS) + thread)
            source = b.index(b.clamped(ids[row], vocab))
            for step in range(STEPS):
                column = b.index(first + step * THREADS)
                with b.when(column < dim):
                    value = b.to_float32(w[source, column], weight_dtype)
                    b.store(y, value, (row, column))
    return kernel.function
