"""Output of a product: a chain of operations is run on the sums before they are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.backend import REGISTERS
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, ChainStep
from maxtool.compiler.kernels.pointwise import run_chain

# Neighbouring sums that are stored at once: 16 bytes.
FOUR = 4

NONE = -1  # in the place of a row that does not exist

# From the number of a row among some to the row of a part.
Row: TypeAlias = Callable[[b.Expr], b.Expr]

# From a row of a part to whether it exists, and which row of the result it is.
Rows: TypeAlias = Callable[[b.Expr], tuple[b.Expr, b.Expr]]


@dataclass(frozen=True, slots=True)
class Operand:
    """Operand of a chain beside the sums: one row for all of a result, or a tensor of its shape."""

    buffer: b.Buffer
    is_row: bool
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Output:
    """The result ``[rows, columns]`` of a product, one matrix of a batch or by itself.

    Where it is that of a group, it is some columns of a wider one, whose buffers these are.
    """

    y: b.Buffer  # ``[*batch, rows, columns]`` of type ``dtype``
    rows: b.Expr  # how many there are
    columns: b.Expr  # how many there are
    operands: tuple[Operand, ...] = ()
    steps: tuple[ChainStep, ...] = ()  # of a sum, and then the operands
    dtype: str = "float32"  # what the last step is rounded to
    # Whether ``columns`` is a multiple of four, so that four values are stored at once.
    fours: bool = False
    at: tuple[b.Expr, ...] = ()  # which matrix of the batch it is
    before: b.Expr | None = None  # columns of the groups before its own

    @property
    def width(self) -> int:
        """Neighbours that are stored at once."""
        return FOUR if self.fours else 1

    def of(self, index: b.Expr) -> Output:
        """The result of one of a batch, or of one group."""
        if self.before is None:
            return replace(self, at=(index,))
        return replace(self, before=b.index(index * self.columns))

    def rows_from(self, first: b.Expr) -> Rows:
        """Return what gives a row of the result for one of a part that begins at ``first``."""

        def row(offset: b.Expr) -> tuple[b.Expr, b.Expr]:
            index = b.index(first + offset)
            return index < self.rows, index

        return row

    def place(self, row: b.Expr, column: b.Expr) -> tuple[b.Expr, ...]:
        """The indices of an element."""
        return (*self.at, row, self.column(column))

    def column(self, column: b.Expr) -> b.Expr:
        """The index of a column in the buffers."""
        return column if self.before is None else self.before + column

    def finished(self, total: b.Expr, values: Sequence[b.Expr]) -> b.Expr:
        """Return what the chain gives for a sum and the values of the operands."""
        return run_chain(REGISTERS, self.steps, [total, *values]) if self.steps else total

    def value(self, row: b.Expr, column: b.Expr, total: b.Expr) -> b.Expr:
        """Return what the chain gives for the sum of an element that exists."""
        places = (
            (self.column(column),) if one.is_row else self.place(row, column)
            for one in self.operands
        )
        both = zip(self.operands, places, strict=True)
        return self.finished(total, [e.read(one.buffer, at, one.dtype) for one, at in both])

    def store(self, row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
        """Write the sum of one product where it exists."""
        with b.when(row < self.rows), b.when(column < self.columns):
            place = self.place(row, column)
            e.write(self.y, self.value(row, column, *sums), place, self.dtype)


def declared(
    kernel: b.Kernel, shape: tuple[b.Expr, ...], after: ChainEpilogue
) -> tuple[Operand, ...]:
    """The next parameters of a kernel: what its epilogue reads of a result of a shape."""
    operands = []
    for number, (is_row, dtype) in enumerate(after.inputs):
        sizes = shape[-1:] if is_row else shape
        buffer = kernel.argument(f"x{number}", sizes, b.STORAGE[dtype])
        operands.append(Operand(buffer, is_row, dtype))
    return tuple(operands)


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
        return self.looks_up or any(not one.is_row for one in self.output.operands)

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
        self.rows = [self._row(one) if one.is_row else None for one in self.output.operands]

    def write(self, count: int, row: Row, sums: Callable[[b.Expr], Sequence[b.Expr]]) -> None:
        """Write ``count`` rows of the part; what each needs is loaded for all first."""
        rows, output = b.scratch((count,), "int64"), self.output
        read = [
            self._registers(operand, count) if held is None else None
            for operand, held in zip(output.operands, self.rows, strict=True)
        ]
        with T.unroll(b.int32(count)) as index:
            exists, row_index = self.part.rows(row(index))
            held = T.Select(T.And(exists, self.exist), row_index, b.integer(NONE))
            b.store(rows, held, (index,))
            for operand, registers in zip(output.operands, read, strict=True):
                if registers is not None:
                    with b.when(rows[index] > NONE):
                        self._load(registers, (index, 0), operand, self._place(rows[index]))
        with T.unroll(b.int32(count)) as index, b.when(rows[index] > NONE):
            operands = [
                ln.unpack(both[0], output.width, operand.dtype)
                if both[0] is not None
                else ln.unpack(both[1], output.width, operand.dtype, row=(index,))
                for operand, *both in zip(output.operands, self.rows, read, strict=True)
            ]
            values = [
                output.finished(total, [operand[lane] for operand in operands])
                for lane, total in enumerate(sums(index))
            ]
            place = self._place(rows[index])
            ln.write(output.y, ln.put(values), place, output.width, output.dtype)

    def _place(self, row: b.Expr) -> tuple[b.Expr, ...]:
        return self.output.place(row, self.first)

    def _row(self, operand: Operand) -> b.Buffer:
        """Load the columns of an operand that is one row."""
        held = self._registers(operand)
        with b.when(self.exist):
            self._load(held, (0,), operand, (self.output.column(self.first),))
        return held

    def _registers(self, operand: Operand, *rows: int) -> b.Buffer:
        """Registers for what one store needs of an operand, for each of some rows."""
        width = self.output.width
        count, dtype = ln.registers(width, width, operand.dtype)
        return b.scratch((*rows, count), dtype)

    def _load(
        self, held: b.Buffer, at: Sequence[b.Index], operand: Operand, place: tuple[b.Expr, ...]
    ) -> None:
        ln.load(held, at, (operand.buffer, place), self.output.width, operand.dtype)
