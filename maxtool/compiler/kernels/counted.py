"""Indices of the elements that were counted: the same steps for every target."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels import builder as b


class Arguments:
    """The parameters of a kernel that writes a row for each element that was counted.

    They are counts[n] int64, how many there are up to each element; shaped, the same in the shape
    of these elements; y[m, rank] int64, the result, of as many rows as the last of the counts says.
    """

    def __init__(self, made: b.Kernel, rank: int) -> None:
        self._n, self.m = made.dim("n"), made.dim("m")
        self._sizes = [made.dim(f"size_{axis}") for axis in range(rank)]
        self._counts = made.argument("counts", (self._n,), "int64")
        made.argument("shaped", self._sizes, "int64")
        self._y = made.argument("y", (self.m, rank), "int64")

    def write(self, row: b.Expr) -> None:
        """Write where an element is: the first up to which there are more than ``row``."""
        low, high = b.scratch((1,), "int64"), b.scratch((1,), "int64")
        b.store(low, b.integer(0), (0,), 1)
        b.store(high, self._n, (0,), 1)
        with T.While(low[0] < high[0]):
            middle = b.let(b.quotient(low[0] + high[0], 2), 1, "int64")
            b.either(
                self._counts[middle] > row,
                lambda: b.store(high, middle, (0,), 1),
                lambda: b.store(low, middle + b.integer(1), (0,), 1),
            )
        for axis, place in enumerate(b.unravel(b.index(low[0]), self._sizes)):
            b.store(self._y, place, (row, axis), 1)
