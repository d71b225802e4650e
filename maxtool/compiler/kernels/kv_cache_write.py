"""Writing new keys and values into a cache, in place.

What would land outside the cache is dropped: a caller checks the position and reports.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, RowThreads


def cache_write(
    backend: Backend, kv_heads: int, head_dim: int, dtype: str, transposed: bool = False
) -> b.PrimFunc:
    """Build the write of values, or of keys, which lie as values do or are ``transposed``.

    Parameters of the kernel: cache[batch, kv_heads, context, head_dim] of ``dtype`` (changed in
    place), its last two dimensions swapped if transposed, so that one dimension of many keys is a
    vector; x[batch, seq, kv_heads, head_dim], position[1] int32 of the first that is new.
    """
    kind = "key" if transposed else "value"
    with b.kernel(f"cache_write_{kind}_{kv_heads}_{head_dim}") as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        sizes = (head_dim, context) if transposed else (context, head_dim)
        cache = kernel.argument("cache", (batch, kv_heads, *sizes), e.storage_type(dtype))
        x = kernel.argument("x", (batch, seq, kv_heads, head_dim))
        position = kernel.argument("position", (1,), "int32")

        def row_of(s: b.Expr) -> tuple[b.Expr, b.Expr]:
            row = b.index(T.Cast("int64", position[0]) + s)
            return row, tirx.all(row >= b.integer(0), row < context)

        def head(i: b.Expr, threads: RowThreads) -> None:
            at, s, h = b.unravel(i, (batch, seq, kv_heads))
            row, inside = row_of(s)

            def move(k: b.Index, width: int) -> None:
                vector = backend.load_vector(x, (at, s, h, k), width)
                backend.store_vector(cache, vector, (at, h, row, k), width, dtype)

            with b.when(inside):
                threads.each_vector(head_dim, move)

        def dimension(at: b.Expr, h: b.Expr, d: b.Expr) -> Callable[[b.Expr], None]:
            def move(s: b.Expr) -> None:
                row, inside = row_of(s)
                with b.when(inside):
                    backend.write(cache, x[at, s, h, d], (at, h, d, row), dtype)

            return move

        if transposed:
            backend.each_element((batch, kv_heads, head_dim, seq), dimension)
        else:
            types = "float32", dtype
            backend.each_row(batch * seq * kv_heads, head_dim, head, dtypes=types)
    return kernel.function
