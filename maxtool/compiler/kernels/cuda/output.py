"""Where the sums of a product go; a bias and a residual are added on the way."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import lanes as ln


@dataclass(frozen=True, slots=True)
class Output:
    """The result ``[rows, columns]`` of a product, one matrix of a batch or by itself.

    Attributes:
        y: ``[*batch, rows, columns]`` float32.
        rows: How many there are.
        columns: How many there are.
        bias: ``[columns]`` float32, added to each row, or None.
        residual: Of the shape of ``y``, added too, or None.
        paired: Whether ``columns`` is even, so that two values are stored at once.
        at: Which matrix of the batch it is.
    """

    y: b.Buffer
    rows: b.Expr
    columns: b.Expr
    bias: b.Buffer | None = None
    residual: b.Buffer | None = None
    paired: bool = False
    at: tuple[b.Expr, ...] = ()

    def with_bias(self, column: b.Expr, value: b.Expr) -> b.Expr:
        """A sum of a column that exists with its bias."""
        return value if self.bias is None else value + self.bias[column]

    def store(self, row: b.Expr, column: b.Expr, value: b.Expr) -> None:
        """Write one sum where it exists."""
        with b.when(row < self.rows), b.when(column < self.columns):
            place = (*self.at, row, column)
            value = self.with_bias(column, value)
            value = value if self.residual is None else value + self.residual[place]
            b.store(self.y, value, place, 1)

    def store_pair(self, row: b.Expr, column: b.Expr, sums: b.Buffer, offset: int) -> None:
        """Write two neighbouring sums where they exist.

        Args:
            row: Their row.
            column: The first of their columns, which is even.
            sums: Registers.
            offset: The first sum in these; even.
        """
        if not self.paired:
            for one in range(2):
                self.store(row, b.index(column + one), sums[offset + one])
            return
        with b.when(row < self.rows), b.when(column < self.columns):
            place = (*self.at, row, column)
            values = [self.with_bias(b.index(column + one), sums[offset + one]) for one in range(2)]
            if self.residual is not None:
                more = ln.read(self.residual, place, 2, "float32")
                values = [value + more[one] for one, value in enumerate(values)]
            pair = b.scratch((2,))
            for one, value in enumerate(values):
                b.store(pair, value, (one,), 1)
            b.store(self.y, b.load(pair, (0,), 2), place, 2)
