"""Normalisation of rows."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e

# Independent sums of squares.
CHAINS = 4


def rms_norm(tile: RegisterTile, dim: int, eps: float, out: str = "float32") -> b.PrimFunc:
    """Build ``y = x / sqrt(mean(x**2) + eps) * w``.

    Parameters of the kernel: x[rows, dim], w[dim], both float32, y[rows, dim] of type ``out``.
    """
    with b.kernel(f"rms_norm_{dim}") as kernel:
        rows = kernel.dim("rows")
        x = kernel.argument("x", (rows, dim))
        w = kernel.argument("w", (dim,))
        y = kernel.argument("y", (rows, dim), e.storage_type(out))

        def row(i: b.Expr) -> None:
            mean = _sum_of_squares(x, i, dim, tile.width) / T.float32(dim)
            scale = b.let(T.float32(1) / T.sqrt(mean + T.float32(eps)))

            def scaled(offset: b.Index, width: int) -> None:
                value = b.load(x, (i, offset), width) * b.splat(scale, width)
                e.write(y, value * b.load(w, (offset,), width), (i, offset), out, width)

            b.each_vector(dim, tile.width, scaled)

        b.each_row(rows, dim, row)
    return kernel.function


def _sum_of_squares(x: b.Buffer, i: b.Expr, dim: int, width: int) -> b.Expr:
    """Sum squares over a row, in several vectors of partial sums that are folded at the end."""
    sums = b.Registers(CHAINS, width, width)
    sums.clear()
    step = CHAINS * width
    if whole := dim // step:
        with T.serial(b.integer(whole)) as j:
            for chain in range(CHAINS):
                value = b.let(b.load(x, (i, j * step + chain * width), width))
                sums.add(chain, 0, width, value * value)
    for chain, (offset, part) in enumerate(b.widths(dim % step, width)):
        value = b.let(b.load(x, (i, whole * step + offset), part))
        sums.add(chain % CHAINS, 0, part, value * value)
    total = sums.get(0, 0, width)
    for chain in range(1, CHAINS):
        total = total + sums.get(chain, 0, width)
    return b.fold(total, width, b.add)
