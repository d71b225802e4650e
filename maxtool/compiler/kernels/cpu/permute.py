"""Dimensions in another order: each row of the result is copied, wherever its elements lie."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b


def permute(dtype: str, dims: tuple[int, ...]) -> b.PrimFunc:
    """Build the copy.

    Parameters of the kernel: x of any sizes, y whose dimension i is dimension ``dims[i]`` of x.

    Args:
        dtype: How an element is passed.
        dims: The order; at least one.
    """
    with b.kernel(f"permute_{'_'.join(map(str, dims))}_{dtype}") as made:
        sizes = [made.dim(f"size_{axis}") for axis in range(len(dims))]
        x = made.argument("x", sizes, dtype)
        *outer, width = [sizes[dim] for dim in dims]
        y = made.argument("y", (*outer, width), dtype)

        def row(i: b.Expr) -> None:
            places = b.unravel(i, outer)
            with T.serial(width) as j:
                source = dict(zip(dims, (*places, j), strict=True))
                b.store(y, x[tuple(source[axis] for axis in range(len(dims)))], (*places, j))

        rows = b.integer(1)
        for size in outer:
            rows = rows * size
        b.each_row(rows, width, row)
    return made.function
