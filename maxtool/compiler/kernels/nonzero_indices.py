"""Indices of the elements that were counted: the same steps for every target."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend

WORK = 64  # of one row: halvings, each a read


def nonzero_places(backend: Backend, rank: int) -> b.PrimFunc:
    """Build the kernel of :class:`NonzeroArguments` for elements in so many dimensions."""
    with b.kernel(f"nonzero_{rank}") as kernel:
        arguments = NonzeroArguments(kernel, rank)
        backend.each_element((arguments.m,), lambda: arguments.write, work=WORK)
    return kernel.function


class NonzeroArguments:
    """The parameters of a kernel that writes a row for each element that was counted.

    They are counts[n] int64, how many there are up to each element; shaped, the same in the shape
    of these elements; y[m, rank] int64, the result, of as many rows as the last of the counts says.
    """

    def __init__(self, kernel: b.Kernel, rank: int) -> None:
        self._n, self.m = kernel.dim("n"), kernel.dim("m")
        self._sizes = [kernel.dim(f"size_{axis}") for axis in range(rank)]
        self._counts = kernel.argument("counts", (self._n,), "int64")
        kernel.argument("shaped", self._sizes, "int64")
        self._y = kernel.argument("y", (self.m, rank), "int64")

    def write(self, row: b.Expr) -> None:
        """Write where an element is: the first up to which there are more than ``row``."""
        low, high = b.cell(b.integer(0)), b.cell(self._n)
        with T.While(low.value < high.value):
            middle = b.let(b.quotient(low.value + high.value, 2))
            b.either(
                self._counts[middle] > row,
                lambda: high.set(middle),
                lambda: low.set(middle + b.integer(1)),
            )
        for axis, coordinate in enumerate(b.unravel(b.index(low.value), self._sizes)):
            b.store(self._y, coordinate, (row, axis))
