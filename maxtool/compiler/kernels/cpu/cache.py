"""Writing new keys and values into a cache, in place.

What would land outside the cache is dropped: a caller checks the position and reports.
"""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e


def cache_write_key(
    tile: RegisterTile, kv_heads: int, head_dim: int, dtype: str = "float32"
) -> b.PrimFunc:
    """Build the write of keys, transposed so that one dimension of many keys is a vector.

    Parameters of the kernel: cache[batch, kv_heads, head_dim, context] (changed in place),
    x[batch, seq, kv_heads, head_dim], position[1] int32 of the first new key. The cache is of
    ``dtype``, x float32.
    """
    del tile  # single elements move
    with b.kernel(f"cache_write_key_{kv_heads}_{head_dim}") as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        cache = kernel.argument(
            "cache", (batch, kv_heads, head_dim, context), e.storage_type(dtype)
        )
        x = kernel.argument("x", (batch, seq, kv_heads, head_dim))
        position = kernel.argument("position", (1,), "int32")

        def row(i: b.Expr) -> None:
            at, h = b.index(b.quotient(i, kv_heads)), b.index(b.remainder(i, kv_heads))
            start = b.index(T.Cast("int64", position[0]))
            first, last = _inside(start, seq, context)
            with T.serial(b.integer(head_dim)) as d, T.serial(first, last) as s:
                e.write(cache, x[at, s, h, d], (at, h, d, start + s), dtype)

        b.each_row(batch * kv_heads, seq * head_dim, row)
    return kernel.function


def cache_write_value(
    tile: RegisterTile, kv_heads: int, head_dim: int, dtype: str = "float32"
) -> b.PrimFunc:
    """Build the write of values, or of keys that lie as values do.

    Parameters of the kernel: cache[batch, kv_heads, context, head_dim] (changed in place),
    x[batch, seq, kv_heads, head_dim], position[1] int32 of the first new value. The cache is of
    ``dtype``, x float32.
    """
    with b.kernel(f"cache_write_value_{kv_heads}_{head_dim}") as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        cache = kernel.argument(
            "cache", (batch, kv_heads, context, head_dim), e.storage_type(dtype)
        )
        x = kernel.argument("x", (batch, seq, kv_heads, head_dim))
        position = kernel.argument("position", (1,), "int32")

        def row(i: b.Expr) -> None:
            at, h = b.index(b.quotient(i, kv_heads)), b.index(b.remainder(i, kv_heads))
            start = b.index(T.Cast("int64", position[0]))
            first, last = _inside(start, seq, context)
            with T.serial(first, last) as s:
                for offset, width in b.widths(head_dim, tile.width):
                    value = b.load(x, (at, s, h, offset), width)
                    e.write(cache, value, (at, h, start + s, offset), dtype, width)

        b.each_row(batch * kv_heads, seq * head_dim, row)
    return kernel.function


def _inside(start: b.Expr, seq: b.Expr, context: b.Expr) -> tuple[b.Expr, b.Expr]:
    """The range of rows that land inside the cache."""
    first = b.index(b.greatest(b.integer(0) - start, 0))
    return first, b.index(b.least(context - start, seq))
