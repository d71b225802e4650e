"""Normalisation of rows."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.target import Tile

# Independent sums of squares.
CHAINS = 4


def rms_norm(tile: Tile, dim: int, eps: float) -> b.PrimFunc:
    """Build ``y = x / sqrt(mean(x**2) + eps) * w``.

    Parameters of the kernel: x[rows, dim], w[dim], y[rows, dim], all float32.
    """
    with b.kernel(f"rms_norm_{dim}") as made:
        rows = made.dim("rows")
        x = made.argument("x", (rows, dim))
        w = made.argument("w", (dim,))
        y = made.argument("y", (rows, dim))

        def row(i: b.Expr) -> None:
            mean = _sum_of_squares(x, i, dim, tile.lanes) / T.float32(dim)
            scale = b.let(T.float32(1) / T.sqrt(mean + T.float32(eps)))

            def scaled(offset: b.Index, lanes: int) -> None:
                value = b.load(x, (i, offset), lanes) * b.splat(scale, lanes)
                b.store(y, value * b.load(w, (offset,), lanes), (i, offset), lanes)

            b.each_vector(dim, tile.lanes, scaled)

        b.each_row(rows, dim, row)
    return made.function


def _sum_of_squares(x: b.Buffer, i: b.Expr, dim: int, lanes: int) -> b.Expr:
    """Over a row, in several vectors of sums that are folded at the end."""
    sums = b.Registers(CHAINS, lanes, lanes)
    sums.clear()
    step = CHAINS * lanes
    if whole := dim // step:
        with T.serial(b.integer(whole)) as j:
            for chain in range(CHAINS):
                value = b.let(b.load(x, (i, j * step + chain * lanes), lanes))
                sums.add(chain, 0, lanes, value * value)
    for chain, (offset, width) in enumerate(b.widths(dim % step, lanes)):
        value = b.let(b.load(x, (i, whole * step + offset), width))
        sums.add(chain % CHAINS, 0, width, value * value)
    total = sums.get(0, 0, lanes)
    for chain in range(1, CHAINS):
        total = total + sums.get(chain, 0, lanes)
    return b.fold(total, lanes, b.add)
