"""Indices of the elements that were counted: the same steps for every target."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend

WORK = 64  # of one row: halvings, each a read


def nonzero_places(backend: Backend, rank: int) -> b.PrimFunc:
    """Build the writing of a row for each element that was counted, in ``rank`` dimensions.

    Parameters of the kernel: counts[n] int64, how many there are up to each element; shaped, the
    same in the shape of these elements; y[m, rank] int64, of as many rows as the last count says.
    """
    with b.kernel(f"nonzero_{rank}") as kernel:
        n, m = kernel.dim("n"), kernel.dim("m")
        sizes = [kernel.dim(f"size_{axis}") for axis in range(rank)]
        counts = kernel.argument("counts", (n,), "int64")
        kernel.argument("shaped", sizes, "int64")
        y = kernel.argument("y", (m, rank), "int64")

        def write(row: b.Expr) -> None:
            """Write where an element is: the first up to which there are more than ``row``."""
            low, high = b.cell(b.integer(0)), b.cell(n)
            with T.While(low.value < high.value):
                middle = b.let(b.quotient(low.value + high.value, 2))
                b.either(
                    counts[middle] > row,
                    lambda: high.set(middle),
                    lambda: low.set(middle + b.integer(1)),
                )
            for axis, coordinate in enumerate(b.unravel(b.index(low.value), sizes)):
                b.store(y, coordinate, (row, axis))

        backend.each_element((m,), lambda: write, work=WORK)
    return kernel.function
