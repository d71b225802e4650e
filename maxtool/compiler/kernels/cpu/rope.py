"""Rotary position embedding, in the layout of two halves."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b


def rope(tile: RegisterTile, head_dim: int, dim: int) -> b.PrimFunc:
    """Build the rotation of element j and j + dim / 2 by the angle of their position.

    Parameters of the kernel: x[batch, seq, heads, head_dim], cos[context, dim / 2],
    sin[context, dim / 2], position[1] int32 of the first row, y like x. Positions outside the
    tables take their first or last row. Elements from ``dim`` on are copied.
    """
    half = dim // 2
    with b.kernel(f"rope_{head_dim}_{dim}") as kernel:
        batch, seq, heads = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("heads")
        context = kernel.dim("context")
        x = kernel.argument("x", (batch, seq, heads, head_dim))
        cos = kernel.argument("cos", (context, half))
        sin = kernel.argument("sin", (context, half))
        position = kernel.argument("position", (1,), "int32")
        y = kernel.argument("y", (batch, seq, heads, head_dim))

        def row(i: b.Expr) -> None:
            at, s = b.index(b.quotient(i, seq)), b.index(b.remainder(i, seq))
            angle = b.index(b.clamped(T.Cast("int64", position[0]) + s, context))
            with T.serial(heads) as h:
                for offset, width in b.widths(half, tile.width):
                    low = b.let(b.load(x, (at, s, h, offset), width))
                    high = b.let(b.load(x, (at, s, h, half + offset), width))
                    c = b.let(b.load(cos, (angle, offset), width))
                    d = b.let(b.load(sin, (angle, offset), width))
                    b.store(y, low * c - high * d, (at, s, h, offset), width)
                    b.store(y, high * c + low * d, (at, s, h, half + offset), width)
                for offset, width in b.widths(head_dim - dim, tile.width):
                    rest = b.load(x, (at, s, h, dim + offset), width)
                    b.store(y, rest, (at, s, h, dim + offset), width)

        b.each_row(batch * seq, heads * head_dim, row)
    return kernel.function
