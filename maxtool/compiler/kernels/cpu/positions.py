"""Adding learned positions."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.target import Tile


def add_positions(tile: Tile, hidden: int, weight_dtype: str) -> b.PrimFunc:
    """Build the sum of each token with the row of its position.

    Parameters of the kernel: x[batch, seq, hidden], table[positions, hidden] of ``weight_dtype``,
    position[1] int32 of the first token, y like x. Positions outside the table take its first or
    last row.
    """
    with b.kernel(f"add_positions_{hidden}_{weight_dtype}") as made:
        batch, seq, positions = made.dim("batch"), made.dim("seq"), made.dim("positions")
        x = made.argument("x", (batch, seq, hidden))
        table = made.argument("table", (positions, hidden), b.STORAGE[weight_dtype])
        position = made.argument("position", (1,), "int32")
        y = made.argument("y", (batch, seq, hidden))

        def row(i: b.Expr) -> None:
            at, s = b.index(b.quotient(i, seq)), b.index(b.remainder(i, seq))
            place = b.index(b.clamped(T.Cast("int64", position[0]) + s, positions))

            def added(offset: b.Index, lanes: int) -> None:
                more = b.load_weight(table, (place, offset), lanes, weight_dtype)
                total = b.load(x, (at, s, offset), lanes) + more
                b.store(y, total, (at, s, offset), lanes)

            b.each_vector(hidden, tile.lanes, added)

        b.each_row(batch * seq, hidden, row)
    return made.function
