"""Dimensions in another order, in tiles that are transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels import moving
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.backend import CpuBackend
from maxtool.compiler.kernels.cpu.transpose import transposed

# Rows and columns of a tile, a power of two; tiles side by side, which share lines of the cache.
SIDE = 8
TILES = 2
# Elements of a row of the result that one task writes.
LENGTH = 256
# Channels of a picture.
NARROW = 3


def permute(tile: RegisterTile, dtype: str, dims: tuple[int, ...]) -> b.PrimFunc:
    """Build the kernel of :func:`moving.permute`, by tiles where the last dimension changes."""
    backend = CpuBackend(tile)
    last, across = len(dims) - 1, dims[-1]
    if across == last:
        return moving.permute(backend, dtype, dims)
    span = SIDE if dtype.endswith("64") else SIDE * TILES
    with b.kernel(f"permute_{'_'.join(map(str, dims))}_{dtype}") as kernel:
        sizes = [kernel.dim(f"size_{axis}") for axis in range(len(dims))]
        x = kernel.argument("x", sizes, dtype)
        moved = [sizes[dim] for dim in dims]
        y = kernel.argument("y", moved, dtype)
        others = [axis for axis in range(last) if axis != across]
        blocks = [*(sizes[axis] for axis in others)]
        blocks += [b.ceildiv(sizes[last], span), b.ceildiv(sizes[across], LENGTH)]

        def block(number: b.Expr) -> None:
            *outer, strip, part = b.unravel(number, blocks)
            place = dict(zip(others, outer, strict=True))
            first, start = b.index(strip * span), b.index(part * LENGTH)
            end = b.index(b.least(start + LENGTH, sizes[across]))

            def at(order: Sequence[int], i: b.Index, k: b.Index) -> b.Indices:
                here = place | {across: i, last: k}
                return tuple(here[axis] for axis in order)

            def each(columns: tuple[b.Index, b.Index], begin: b.Index) -> None:
                with T.serial(*columns) as k, T.serial(begin, end) as i:
                    b.store(y, x[at(range(last + 1), i, k)], at(dims, i, k))

            def tiles() -> None:
                whole = b.index(b.quotient(end - start, SIDE))
                with T.serial(whole) as t:
                    i = b.index(start + t * SIDE)
                    for offset in range(0, span, SIDE):
                        k = first + offset
                        rows = [
                            b.let(b.load(x, at(range(last + 1), i + row, k), SIDE))
                            for row in range(SIDE)
                        ]
                        for column, vector in enumerate(transposed(rows)):
                            b.store(y, vector, at(dims, i, k + column), SIDE)
                each((first, first + span), b.index(start + whole * SIDE))

            def narrow() -> None:
                """Write the few elements of each row of the result side by side."""
                stop = b.index(b.least(first + span, sizes[last]))
                with T.serial(first, stop) as k:
                    for i in range(NARROW):
                        b.store(
                            y, x[at(range(last + 1), b.integer(i), k)], at(dims, b.integer(i), k)
                        )

            def wide() -> None:
                b.either(
                    first + span <= sizes[last], tiles, lambda: each((first, sizes[last]), start)
                )

            b.either(sizes[across] == NARROW, narrow, wide)

        b.either(
            sizes[last] < span,
            lambda: moving.move_elements(backend, x, y, moved, dims),
            lambda: b.each_row(prod(blocks, start=b.integer(1)), span * LENGTH, block),
        )
    return kernel.function
