"""Where the sums of a product go; a bias and a residual are added on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import lanes as ln

# Neighbouring sums that are stored at once: 16 bytes.
FOUR = 4


@dataclass(frozen=True, slots=True)
class Output:
    """The result ``[rows, columns]`` of a product, one matrix of a batch or by itself.

    Attributes:
        y: ``[*batch, rows, columns]`` float32.
        rows: How many there are.
        columns: How many there are.
        bias: ``[columns]`` float32, added to each row, or None.
        residual: Of the shape of ``y``, added too, or None.
        fours: Whether ``columns`` is a multiple of four, so that four values are stored at once.
        at: Which matrix of the batch it is.
    """

    y: b.Buffer
    rows: b.Expr
    columns: b.Expr
    bias: b.Buffer | None = None
    residual: b.Buffer | None = None
    fours: bool = False
    at: tuple[b.Expr, ...] = ()

    @property
    def lanes(self) -> int:
        """Neighbours that are stored at once."""
        return FOUR if self.fours else 1

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


# From a row of a part to whether it exists, and which row of the result it is.
Rows: TypeAlias = Callable[[b.Expr], tuple[b.Expr, b.Expr]]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a result that a block computes.

    Attributes:
        output: The result.
        rows: Its rows.
        left: Its first column.
        looks_up: Whether ``rows`` reads memory.
    """

    output: Output
    rows: Rows
    left: b.Expr
    looks_up: bool = False

    @property
    def loads(self) -> bool:
        """Whether something is loaded for each row that is written."""
        return self.looks_up or self.output.residual is not None

    def columns(self, first: b.Expr) -> Columns:
        """Some of its columns: as many as are stored at once."""
        return Columns(self, b.index(self.left + first))


class Columns:
    """Neighbouring columns of a part, whose sums one thread writes.

    Args:
        part: The part.
        first: Which column of the result is the first; they all exist, or none of them.
    """

    def __init__(self, part: Part, first: b.Expr) -> None:
        self.part, self.output, self.first = part, part.output, first
        self.exist = first < self.output.columns
        self.bias: b.Buffer | None = None
        if self.output.bias is not None:
            self.bias = b.scratch((self.output.lanes,))
            with b.when(self.exist):
                for lane in range(self.output.lanes):
                    value = self.output.bias[b.index(first + lane)]
                    b.store(self.bias, value, (lane,), 1)

    def write(self, rows: Sequence[b.Expr], sums: Callable[[int], Sequence[b.Expr]]) -> None:
        """Write some rows; what is added to them is loaded for all of them first.

        Args:
            rows: Rows of the part.
            sums: The sums of one of these, by its place among them.
        """
        found = [self.part.rows(row) for row in rows]
        more = [self._more(*one) for one in found]
        for index, (exists, row) in enumerate(found):
            with b.when(exists), b.when(self.exist):
                values = list(sums(index))
                for added in (self.bias, more[index]):
                    if added is not None:
                        values = [value + added[lane] for lane, value in enumerate(values)]
                place = (*self.output.at, row, self.first)
                ln.write(self.output.y, ln.put(values), place, self.output.lanes, "float32")

    def _more(self, exists: b.Expr, row: b.Expr) -> b.Buffer | None:
        """The residual of a row, if there is one."""
        residual = self.output.residual
        if residual is None:
            return None
        values = b.scratch((self.output.lanes,))
        with b.when(exists), b.when(self.exist):
            place = (*self.output.at, row, self.first)
            held = ln.read(residual, place, self.output.lanes, "float32")
            for lane in range(self.output.lanes):
                b.store(values, held[lane], (lane,), 1)
        return values
