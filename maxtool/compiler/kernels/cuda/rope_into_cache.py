"""Rotating queries and keys, and writing new keys and values into a cache, in place.

What would land outside the cache is dropped: a caller checks the position and reports.
"""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.rope import Rotation


def rope_into_cache(heads: int, kv_heads: int, head_dim: int, dim: int, dtype: str) -> b.PrimFunc:
    """Build, in one launch, what attention needs of a call: rotated queries and a written cache.

    Parameters of the kernel: key and value cache[batch, kv_heads, context, head_dim] of ``dtype``
    (changed in place), q[batch, seq, heads, head_dim], k and v[batch, seq, kv_heads, head_dim],
    cos and sin[angles, dim / 2], first[1] int32 of the row of the first angle, position[1] int32 of
    the first new key, y like q. A block rotates or copies one head of one token.
    """
    rotation = Rotation(head_dim, dim)
    width = min(4, rotation.width(), ln.widest(dtype, head_dim, dim // 2, limit=8))
    threads = ln.threads_for(rotation.units(width))
    with b.kernel(f"rope_into_cache_{heads}_{kv_heads}_{head_dim}") as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        angles = kernel.dim("angles")
        sizes = (batch, kv_heads, context, head_dim)
        keys = kernel.argument("keys", sizes, b.STORAGE[dtype])
        values = kernel.argument("values", sizes, b.STORAGE[dtype])
        q = kernel.argument("q", (batch, seq, heads, head_dim))
        k = kernel.argument("k", (batch, seq, kv_heads, head_dim))
        v = kernel.argument("v", (batch, seq, kv_heads, head_dim))
        cos = kernel.argument("cos", (angles, dim // 2))
        sin = kernel.argument("sin", (angles, dim // 2))
        first = kernel.argument("first", (1,), "int32")
        position = kernel.argument("position", (1,), "int32")
        y = kernel.argument("y", (batch, seq, heads, head_dim))
        blocks = [batch * seq, heads + 2 * kv_heads]
        with b.launch(blocks, threads) as (token, which, thread):
            at, s = b.unravel(token, (batch, seq))
            angle = (cos, sin, b.index(b.clamped(T.Cast("int64", first[0]) + s, angles)))
            row = b.index(T.Cast("int64", position[0]) + s)

            def rotate(source: b.Buffer, head: b.Expr, target: b.Buffer, *to: b.Index) -> None:
                target_dtype = dtype if target is keys else "float32"
                ln.strided(
                    rotation.units(width),
                    thread,
                    threads,
                    lambda unit: rotation.apply(
                        unit, width, (source, (at, s, head)), angle, (target, to, target_dtype)
                    ),
                )

            def copy(head: b.Expr) -> None:
                def work(unit: b.Expr) -> None:
                    offset = b.index(unit * width)
                    value = ln.read(v, (at, s, head, offset), width, "float32")
                    ln.write(values, value, (at, head, row, offset), width, dtype)

                ln.strided(head_dim // width, thread, threads, work)

            def write() -> None:
                with b.when(_inside(row, context)):
                    key, value = b.index(which - heads), b.index(which - (heads + kv_heads))
                    b.either(
                        which < heads + kv_heads,
                        lambda: rotate(k, key, keys, at, key, row),
                        lambda: copy(value),
                    )

            b.either(which < heads, lambda: rotate(q, which, y, at, s, which), write)
    return kernel.function


def _inside(row: b.Expr, context: b.Expr) -> b.Expr:
    return T.And(row >= b.integer(0), row < context)
