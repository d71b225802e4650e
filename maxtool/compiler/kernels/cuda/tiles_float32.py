"""Products of many rows with float32 weights: multiply-add tiles, without tensor cores.

Those would round to TF32. Each thread keeps 8 x 8 sums, and reads 16 values from shared memory for
64 multiply-adds. Stages lie there transposed, ``[terms, rows]``, so that a thread reads four
neighbouring rows at once; the next stage waits in registers while this one is multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.matrix import Pieces, Source
from maxtool.compiler.kernels.cuda.product_output import Part

DEPTH = 16  # terms of a stage
PIECES = DEPTH // 4  # in a row of a stage
GRID = 16  # threads along each side of the tile
THREADS = GRID * GRID
PAD = 4  # values after each row of shared memory: writes meet two banks of four in the same one


@dataclass(frozen=True, slots=True)
class Float32Tile:
    """A tile."""

    side: int  # rows and columns: 64 or 128
    min_blocks_per_sm: int  # blocks that a multiprocessor is to have registers for
    threads: ClassVar[int] = THREADS

    @property
    def rows(self) -> int:
        """Rows of the part of a block."""
        return self.side

    @property
    def columns(self) -> int:
        """Columns, as many."""
        return self.side

    def multiply(
        self,
        operands: tuple[Pieces, Pieces],
        sources: tuple[Source, Source],
        thread: b.Expr,
        part: Part,
    ) -> None:
        """Emit what one block does; as :meth:`ProductTile.multiply`, in float32."""
        size = self.side
        x, w = (
            _staged(size, matrix, source, thread)
            for matrix, source in zip(operands, sources, strict=True)
        )
        sums = ln.zeros(size // GRID * (size // GRID))
        count = b.index(b.ceildiv(operands[0].terms, DEPTH))
        top, left = b.let(thread // GRID), b.let(thread % GRID)
        slot = b.cell(b.int32(0))
        with b.when(count > 0):
            for operand in (x, w):
                operand.fetch(b.integer(0))
        with T.serial(count) as index:
            for operand in (x, w):
                operand.keep(slot.value)
            b.barrier()
            with b.when(index + 1 < count):
                for operand in (x, w):
                    operand.fetch((index + 1) * DEPTH)
            with T.serial(b.int32(DEPTH)) as term:
                _multiply(size, sums, (x.memory, w.memory), (slot.value, term), (top, left))
            slot.set(1 - slot.value)
        _write(size, sums, (top, left), part)


@dataclass(frozen=True, slots=True)
class _Staged:
    """One operand: where it comes from, the next stage in registers, two in shared memory."""

    matrix: Pieces  # where it comes from
    sources: list[b.Expr]  # the rows that this thread copies a piece of
    held: b.Buffer  # ``[len(sources) * 4]``
    memory: b.Buffer  # ``[2, DEPTH, rows + PAD]``
    thread: b.Expr  # the index of the thread

    def fetch(self, k: b.Expr) -> None:
        """Load the terms from ``k`` on."""
        term = b.index(k + self.thread % PIECES * 4)
        for index, source in enumerate(self.sources):
            for one, value in enumerate(self.matrix.fetch(source, term)):
                b.store(self.held, value, (4 * index + one,))

    def keep(self, slot: b.Expr) -> None:
        """Write what was loaded to shared memory."""
        each = THREADS // PIECES
        for index in range(len(self.sources)):
            row = self.thread // PIECES + index * each
            for element in range(4):
                target_index = (slot, self.thread % PIECES * 4 + element, row)
                b.store(self.memory, self.held[4 * index + element], target_index)


def _staged(size: int, matrix: Pieces, source: Source, thread: b.Expr) -> _Staged:
    each = THREADS // PIECES
    sources = [
        b.index(source(T.Cast("int64", thread // PIECES + start))) for start in range(0, size, each)
    ]
    held = b.scratch((4 * len(sources),))
    return _Staged(matrix, sources, held, b.shared((2, DEPTH, size + PAD)), thread)


def _multiply(
    size: int,
    sums: b.Buffer,
    operands: tuple[b.Buffer, b.Buffer],
    at: tuple[b.Expr, b.Expr],
    corner: tuple[b.Expr, b.Expr],
) -> None:
    """Add the products of one term: of fours of rows and columns, one four from each 64."""
    width = size // GRID
    values = []
    for memory, first in zip(operands, corner, strict=True):
        held = b.scratch((width,), "uint32")
        for start in range(0, width, 4):
            source = memory, (*at, first * 4 + start * GRID)
            ln.load(held, (start,), source, 4, "float32")
        values.append(ln.unpack(held, width, "float32", width=4))
    rows, columns = values
    with T.unroll(b.int32(width)) as i, T.unroll(b.int32(width)) as j:
        index = i * width + j
        b.store(sums, sums[index] + rows[i] * columns[j], (index,))


def _write(size: int, sums: b.Buffer, corner: tuple[b.Expr, b.Expr], part: Part) -> None:
    """Write the sums: fours of columns, one from each 64, or column after column."""
    count, width = size // GRID, part.output.width
    top, left = corner
    for j in range(0, count, width):
        column = T.Cast("int64", left * 4 + (j // 4 * 4 * GRID + j % 4))

        def of(i: b.Expr, first: int = j) -> list[b.Expr]:
            return [sums[i * count + first + k] for k in range(width)]

        part.columns(column).write(count, lambda i: T.Cast("int64", _at(top, i)), of)


def _at(thread: b.Expr, index: b.Expr) -> b.Expr:
    """Return the row of a thread: four neighbours of each 64."""
    return thread * 4 + (index // 4 * (4 * GRID) + index % 4)
