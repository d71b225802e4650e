"""Output of a product: bias and residual are added before the sums are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln

# Neighbouring sums that are stored at once: 16 bytes.
FOUR = 4

DTYPE = "float32"
NONE = -1  # in the place of a row that does not exist


@dataclass(frozen=True, slots=True)
class Output:
    """The result ``[rows, columns]`` of a product, one matrix of a batch or by itself."""

    y: b.Buffer  # ``[*batch, rows, columns]`` float32
    rows: b.Expr  # how many there are
    columns: b.Expr  # how many there are
    bias: b.Buffer | None = None  # ``[columns]`` float32, added to each row, or None
    residual: b.Buffer | None = None  # of the shape of ``y``, added too, or None
    # Whether ``columns`` is a multiple of four, so that four values are stored at once.
    fours: bool = False
    at: tuple[b.Expr, ...] = ()  # which matrix of the batch it is

    @property
    def width(self) -> int:
        """Neighbours that are stored at once."""
        return FOUR if self.fours else 1

    def with_bias(self, column: b.Expr, value: b.Expr) -> b.Expr:
        """A sum of a column that exists with its bias."""
        return value if self.bias is None else value + self.bias[column]

    def store(self, row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
        """Write the sum of one product where it exists."""
        with b.when(row < self.rows), b.when(column < self.columns):
            index = (*self.at, row, column)
            value = self.with_bias(column, *sums)
            value = value if self.residual is None else value + self.residual[index]
            b.store(self.y, value, index)


# From the number of a row among some to the row of a part.
Row: TypeAlias = Callable[[b.Expr], b.Expr]

# From a row of a part to whether it exists, and which row of the result it is.
Rows: TypeAlias = Callable[[b.Expr], tuple[b.Expr, b.Expr]]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a result that a block computes."""

    output: Output  # the result
    rows: Rows  # its rows
    left: b.Expr  # its first column
    looks_up: bool = False  # whether ``rows`` reads memory

    @property
    def loads(self) -> bool:
        """Return whether something is loaded for each row that is written."""
        return self.looks_up or self.output.residual is not None

    def columns(self, first: b.Expr) -> Columns:
        """Return a group of neighbouring columns: as many as one store writes."""
        return Columns(self, b.index(self.left + first))


class Columns:
    """Neighbouring columns of a part, from ``first`` on, whose sums one thread writes.

    They all exist, or none of them.
    """

    def __init__(self, part: Part, first: b.Expr) -> None:
        self.part, self.output, self.first = part, part.output, first
        self.exist = first < self.output.columns
        self.bias: b.Buffer | None = None
        if self.output.bias is not None:
            self.bias = b.scratch((self.output.width,))
            with b.when(self.exist):
                for lane in range(self.output.width):
                    value = self.output.bias[b.index(first + lane)]
                    b.store(self.bias, value, (lane,))

    def write(self, count: int, row: Row, sums: Callable[[b.Expr], Sequence[b.Expr]]) -> None:
        """Write ``count`` rows of the part; what is added is loaded for all of them first."""
        rows = b.scratch((count,), "int64")
        width, residual = self.output.width, self.output.residual
        more = None if residual is None else b.scratch((count * width,))
        with T.unroll(b.int32(count)) as index:
            exists, row_index = self.part.rows(row(index))
            held = T.Select(T.And(exists, self.exist), row_index, b.integer(NONE))
            b.store(rows, held, (index,))
            if more is not None:
                with b.when(rows[index] > NONE):
                    ln.load(
                        more, (index * width,), (residual, self._place(rows[index])), width, DTYPE
                    )
        with T.unroll(b.int32(count)) as index, b.when(rows[index] > NONE):
            values = list(sums(index))
            if self.bias is not None:
                values = [value + self.bias[lane] for lane, value in enumerate(values)]
            if more is not None:
                values = [value + more[index * width + lane] for lane, value in enumerate(values)]
            ln.write(self.output.y, ln.put(values), self._place(rows[index]), width, DTYPE)

    def _place(self, row: b.Expr) -> tuple[b.Expr, ...]:
        return (*self.output.at, row, self.first)
