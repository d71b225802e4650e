"""Rotary position embedding, in the layout of two halves."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.target import Tile


def rope(head_dim: int, tile: Tile) -> Any:  # noqa: ANN401
    """Build the rotation of element j and j + head_dim / 2 by the angle of their position.

    Parameters of the kernel: x[batch, seq, heads, head_dim], cos[context, head_dim / 2],
    sin[context, head_dim / 2], position[1] int32 of the first row, y like x. Positions outside the
    tables take their first or last row.
    """
    half = head_dim // 2
    with b.kernel(f"rope_{head_dim}") as made:
        batch, seq, heads = made.dim("batch"), made.dim("seq"), made.dim("heads")
        context = made.dim("context")
        x = made.argument("x", (batch, seq, heads, head_dim))
        cos = made.argument("cos", (context, half))
        sin = made.argument("sin", (context, half))
        position = made.argument("position", (1,), "int32")
        y = made.argument("y", (batch, seq, heads, head_dim))

        def row(i: b.Expr) -> None:
            at, s = b.index(b.quotient(i, seq)), b.index(b.remainder(i, seq))
            angle = b.index(b.clamped(T.Cast("int64", position[0]) + s, context))
            with T.serial(heads) as h:
                for offset, lanes in b.widths(half, tile.lanes):
                    low = b.let(b.load(x, (at, s, h, offset), lanes), lanes)
                    high = b.let(b.load(x, (at, s, h, half + offset), lanes), lanes)
                    c = b.let(b.load(cos, (angle, offset), lanes), lanes)
                    d = b.let(b.load(sin, (angle, offset), lanes), lanes)
                    b.store(y, low * c - high * d, (at, s, h, offset), lanes)
                    b.store(y, high * c + low * d, (at, s, h, half + offset), lanes)

        b.each_row(batch * seq, heads * head_dim, row)
    return made.function
