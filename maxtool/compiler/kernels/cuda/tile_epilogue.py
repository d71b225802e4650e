"""The sums of a tile on their way from the registers of tensor cores to the result.

A thread has pairs of sums in many rows. They go through the shared memory in which the operands
were, 16 rows of each warp at a time, and threads read neighbours from there: what is written, and
what is added before, moves 16 bytes at a time, in whole rows of the tile, and its code is there
once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.product_output import Part

ROWS = 16  # of a warp at a time: those of an mma
# Words after each row of shared memory. Half a warp writes pairs in four rows at a time: these are
# in different banks where rows are 8 words more than a multiple of 32.
PAD = 8
# Rows for which a thread loads what it needs before it writes the first of them.
AHEAD = 8


@dataclass(frozen=True, slots=True)
class TileSums:
    """The sums of a tile, as the threads of a block have them."""

    # ``[rows of the warp / 16, columns of the warp / 8, 4]`` flat: what the thread has of them, as
    # mma gives it.
    sums: b.Buffer
    tile: tuple[int, int]  # rows and columns of the tile
    each: tuple[int, int]  # rows and columns of a warp's part of it
    warp: tuple[b.Expr, b.Expr]  # the row and the column of the warp among the warps
    thread: b.Expr  # the index of the thread
    threads: int  # how many there are

    def hand_out(self, memory: b.Buffer, part: Part) -> None:
        """Write them to the result, through shared memory ``[words]`` that is not used any more."""
        width = part.output.width
        across = self.tile[1] // width
        row = b.let(self.thread // across)
        column = b.let(self.thread % across * width)
        columns = part.columns(T.Cast("int64", column))
        step = self.threads // across
        turns = self.tile[0] // self.each[0] * ROWS // step
        together = min(AHEAD, turns) if part.loads else 1
        with T.serial(b.int32(self.each[0] // ROWS), unroll=False) as index:
            self._put(index, memory)
            b.barrier()
            with T.serial(b.int32(turns // together), unroll=False) as turn:
                start = b.let(row + turn * (step * together))
                columns.write(
                    together,
                    lambda one: T.Cast("int64", self._row(start + one * step, index)),
                    lambda one: _read(memory, (start + one * step) * self._width + column, width),
                )
            b.barrier()

    @property
    def _width(self) -> int:
        """Words from one row in shared memory to the next."""
        return self.tile[1] + PAD

    def _row(self, row: b.Expr, index: b.Expr) -> b.Expr:
        """Return the row of the tile that a row of shared memory holds."""
        return row // ROWS * self.each[0] + index * ROWS + row % ROWS

    def _put(self, index: b.Expr, memory: b.Buffer) -> None:
        """Write 16 rows of each warp to shared memory; registers are known by constants alone."""
        lane, (down, right) = self.thread % b.WARP, self.warp
        row, column = down * ROWS + lane // 4, right * self.each[1] + lane % 4 * 2
        start = b.let(row * self._width + column)
        pairs = self.each[1] // 8
        for one in range(self.each[0] // ROWS):
            with b.when(index == one), T.unroll(b.int32(2 * pairs)) as pair:
                offset = start + (pair % 2 * 8 * self._width + pair // 2 * 8)
                held = b.pointer(self.sums, (pair + 2 * pairs * one) * 2)
                b.do(b.call("mt_store_8", b.pointer(memory, offset), held))


def _read(memory: b.Buffer, offset: b.Expr, width: int) -> list[b.Expr]:
    """Neighbours as float32."""
    if width == 1:
        return [T.reinterpret("float32", memory[offset])]
    held = ln.read(memory, (offset,), width, "float32")
    return [held[lane] for lane in range(width)]
