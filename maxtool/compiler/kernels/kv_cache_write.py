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
    backend: Backend,
    kv_heads: int,
    head_dim: int,
    dtype: str,
    transposed: bool = False,
    slots: bool = False,
    source: str = "float32",
) -> b.PrimFunc:
    """Build the write of values, or of keys, which lie as values do or are ``transposed``.

    Parameters of the kernel: cache[batch, kv_heads, context, head_dim] of ``dtype`` (changed in
    place), its last two dimensions swapped if transposed, so that one dimension of many keys is a
    vector; x[batch, seq, kv_heads, head_dim] of the type ``source``, position[1] int32 of the first
    that is new. With
    ``slots`` the cache has any number of rows, and position[batch] and slot[batch] int32 say where
    those of x go.
    """
    kind = "key" if transposed else "value"
    into = "_slots" if slots else ""
    with b.kernel(f"cache_write_{kind}_{kv_heads}_{head_dim}{into}") as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        rows = kernel.dim("slots") if slots else batch
        sizes = (head_dim, context) if transposed else (context, head_dim)
        cache = kernel.argument("cache", (rows, kv_heads, *sizes), e.storage_type(dtype))
        x = kernel.argument("x", (batch, seq, kv_heads, head_dim), source)
        position = kernel.argument("position", (batch if slots else 1,), "int32")
        slot = kernel.argument("slot", (batch,), "int32") if slots else None

        def target_of(at: b.Expr, s: b.Expr) -> tuple[b.Expr, b.Expr, b.Expr]:
            """Row of the cache, index there, and whether there are such ones."""
            index = b.index(T.Cast("int64", position[at if slots else 0]) + s)
            inside = tirx.all(index >= b.integer(0), index < context)
            if slot is None:
                return at, index, inside
            row = b.index(T.Cast("int64", slot[at]))
            return row, index, tirx.all(inside, row >= b.integer(0), row < rows)

        def head(i: b.Expr, threads: RowThreads) -> None:
            at, s, h = b.unravel(i, (batch, seq, kv_heads))
            row, index, inside = target_of(at, s)

            def move(k: b.Index, width: int) -> None:
                here, there = (at, s, h, k), (row, h, index, k)
                if dtype == source:
                    b.store(cache, b.load(x, here, width), there, width)
                else:
                    vector = backend.load_vector(x, here, width)
                    backend.store_vector(cache, vector, there, width, dtype)

            with b.when(inside):
                threads.each_vector(head_dim, move)

        def dimension(at: b.Expr, h: b.Expr, d: b.Expr) -> Callable[[b.Expr], None]:
            def move(s: b.Expr) -> None:
                row, index, inside = target_of(at, s)
                with b.when(inside):
                    value = backend.read(x, (at, s, h, d), source)
                    backend.write(cache, value, (row, h, d, index), dtype)

            return move

        if transposed:
            backend.each_element((batch, kv_heads, head_dim, seq), dimension)
        else:
            types = source, dtype
            backend.each_row(batch * seq * kv_heads, head_dim, head, dtypes=types)
    return kernel.function
