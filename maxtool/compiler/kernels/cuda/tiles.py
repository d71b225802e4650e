"""Products of many rows with 16-bit weights: tiles of the result on tensor cores.

The stages of both operands wait in shared memory, filled by ``cp.async`` while earlier ones are
multiplied. A row of a stage is 64 terms: 128 bytes, all banks once. Its eight pieces of 16 bytes
are stored at their number xor the row's last three bits, so that eight rows of one piece, which is
what ``ldmatrix`` reads at a time, lie in different banks, and so do the eight pieces of a row,
which is what eight threads write.

Each k16 step of a 64 x 64 warp tile is 8 ldmatrix for 32 mma: 4 KiB read from shared memory for
65,536 multiply-adds. A warp's fragments of the next step are loaded before it multiplies this one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.matrix import MMA, WORDS, Pieces, Source
from maxtool.compiler.kernels.cuda.product_output import Part
from maxtool.compiler.kernels.cuda.tile_epilogue import TileSums

DEPTH = 64  # terms of a stage
PIECES = 8  # in a row of a stage
STEP = 16  # terms of an mma
STEPS = DEPTH // STEP


@dataclass(frozen=True, slots=True)
class ProductTile:
    """Computation of one part of the result by a block."""

    rows: int  # rows of the part, a multiple of 16 for each warp
    columns: int  # columns, likewise
    warps: tuple[int, int]  # how many warps share the rows, and how many the columns
    stages: int  # stages in shared memory
    min_blocks_per_sm: int  # blocks that a multiprocessor is to have registers for

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return b.WARP * self.warps[0] * self.warps[1]

    @property
    def warp_rows(self) -> int:
        """Rows of a warp."""
        return self.rows // self.warps[0]

    @property
    def warp_columns(self) -> int:
        """Columns of a warp."""
        return self.columns // self.warps[1]

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory."""
        return self.stages * (self.rows + self.columns) * DEPTH * 2

    def within(self, shared_memory: int) -> ProductTile:
        """The same with as many stages as fit into so many bytes."""
        stages = shared_memory // (self.shared_memory // self.stages)
        return replace(self, stages=min(self.stages, stages))

    def multiply(
        self,
        operands: tuple[Pieces, Pieces],
        sources: tuple[Source, Source],
        thread: b.Expr,
        part: Part,
    ) -> None:
        """Emit what one block does, with x and weights of one 16-bit type.

        The sources give the row of x for a row of the part, and that of the weights for a column;
        there is always one. The part gets all sums, those that do not exist among them.
        """
        memory = b.shared((self.shared_memory // 4,), "uint32", dynamic=True)
        x = _staged(self, operands[0], sources[0], (memory, 0, self.rows), thread)
        w = _staged(self, operands[1], sources[1], (memory, self.rows, self.columns), thread)
        number = b.let(thread // b.WARP)
        warp = b.let(number % self.warps[0]), b.let(number // self.warps[0])
        mine = _Warp(self, x, w, warp, thread % b.WARP)
        _run(self, (x, w), operands[0].terms, mine)
        size, each = (self.rows, self.columns), (self.warp_rows, self.warp_columns)
        TileSums(mine.sums, size, each, warp, thread, self.threads).hand_out(memory, part)


@dataclass(frozen=True, slots=True)
class _Staged:
    """One operand: where it comes from, and its stages in shared memory."""

    matrix: Pieces  # where it comes from
    source: Source  # from a row of the tile to the one that is read for it
    each: int  # rows that are copied at the same time
    # What ``source`` is for every row that this thread copies, if the rows are aligned. Else copies
    # take long anyway, and their code, too, if it is there for every row.
    held: b.Buffer | None
    memory: b.Buffer  # ``[stages * height * words]``, of both operands
    height: int  # rows of a stage, of both
    first: int  # the operand's first row of each stage, a multiple of 8
    count: int  # how many rows it has there
    thread: b.Expr  # the index of the thread

    def _place(self, stage: b.Expr, row: b.Expr, piece: b.Expr) -> b.Expr:
        """Return the offset of a piece of a row of a stage."""
        line = (stage * self.height + row + self.first) * (PIECES * WORDS)
        return line + (piece ^ (row % PIECES)) * WORDS

    def copy(self, stage: b.Expr, k: b.Expr) -> None:
        """Start copying the terms from ``k`` on."""
        row, piece = self.thread // PIECES, self.thread % PIECES
        term = b.index(k + piece * (DEPTH // PIECES))
        first = b.let(self._place(stage, row, piece))
        turns, held = b.int32(self.count // self.each), self.held
        with T.serial(turns, unroll=False) if held is None else T.unroll(turns) as index:
            at = T.Cast("int64", row + index * self.each)
            source = self.source(at) if held is None else held[index]
            offset = first + index * (self.each * PIECES * WORDS)
            self.matrix.copy(self.memory, (offset,), source, term)

    def fragments(
        self, into: b.Buffer, count: int, stage: b.Expr, row: b.Expr, piece: b.Expr
    ) -> None:
        """Load four 8 x 8 matrices of each of ``count`` times 16 rows.

        This lane points at a piece of a row, and of each sixteenth after it.
        """
        first = b.let(self._place(stage, row, piece))
        with T.unroll(b.int32(count)) as index:
            source = b.pointer(self.memory, first + index * (16 * PIECES * WORDS))
            b.do(b.call("mt_ldmatrix_x4", b.pointer(into, index * 4), source))


def _staged(
    tile: ProductTile,
    matrix: Pieces,
    source: Source,
    corner: tuple[b.Buffer, int, int],
    thread: b.Expr,
) -> _Staged:
    memory, first, count = corner
    each, height = tile.threads // PIECES, tile.rows + tile.columns
    held = b.scratch((count // each,), "int64") if matrix.aligned else None
    if held is not None:
        with T.unroll(b.int32(count // each)) as index:
            row = T.Cast("int64", thread // PIECES + index * each)
            b.store(held, source(row), (index,))
    return _Staged(matrix, source, each, held, memory, height, first, count, thread)


def _run(tile: ProductTile, operands: tuple[_Staged, _Staged], terms: b.Expr, warp: _Warp) -> None:
    """Copy and multiply, stage after stage; copies are ``stages - 1`` ahead.

    A warp's fragments of one step are loaded before it multiplies those of the step before; the
    first of a stage while the tensor cores are busy with the last of the one before. Two steps are
    a turn, so that registers are known by constants.
    """
    count, last = b.index(b.ceildiv(terms, DEPTH)), tile.stages - 1

    def copy(index: b.Expr, slot: b.Expr) -> None:
        with b.when(index < count):
            for operand in operands:
                operand.copy(slot, index * DEPTH)
        b.do(b.call("mt_cp_async_commit"))

    def wait() -> None:
        b.do(b.call("mt_cp_async_wait", b.int32(tile.stages - 2)))
        b.barrier()

    with T.serial(b.int32(last), unroll=False) as stage:
        copy(T.Cast("int64", stage), stage)
    slot = b.cell(b.int32(0))
    wait()
    with b.when(count > 0):
        warp.load(0, slot.value, b.int32(0))
    with T.serial(count, unroll=False) as index:
        # Everyone has read what was there: that was before the last wait.
        free = T.Select(slot.value == 0, b.int32(last), slot.value - 1)
        copy(index + last, b.let(free))
        with T.serial(b.int32(STEPS // 2), unroll=False) as turn:
            warp.load(1, slot.value, 2 * turn + 1)
            warp.multiply(0)
            with b.when(turn == STEPS // 2 - 1):
                wait()
                slot.set(T.Select(slot.value == last, b.int32(0), slot.value + 1))
            with b.when(T.Or(turn < STEPS // 2 - 1, index + 1 < count)):
                warp.load(0, slot.value, T.truncmod(2 * turn + 2, STEPS))
            warp.multiply(1)


class _Warp:
    """One warp's part of the tile; ``warp`` is its row and its column among the warps."""

    def __init__(
        self, tile: ProductTile, x: _Staged, w: _Staged, warp: tuple[b.Expr, b.Expr], lane: b.Expr
    ) -> None:
        self.x, self.w, self.lane = x, w, lane
        self.top, self.left = warp[0] * tile.warp_rows, warp[1] * tile.warp_columns
        self.rows, self.columns = tile.warp_rows // 16, tile.warp_columns // 16
        self.sums = ln.zeros(self.rows * self.columns * 8)
        self.fragments = [
            (b.scratch((self.rows * 4,), "uint32"), b.scratch((self.columns * 4,), "uint32"))
            for _ in range(2)
        ]

    def load(self, which: int, stage: b.Expr, step: b.Expr) -> None:
        """Load the fragments of 16 terms of a stage into some registers, of two.

        ldmatrix takes the addresses of the rows of its four matrices from lanes 0-7, 8-15, 16-23
        and 24-31. For mma these are, of x, rows 0-7 and 8-15 of the first eight terms, then of the
        others; of the weights, the first and the other eight terms of rows 0-7, then of 8-15.
        """
        rows, columns = self.fragments[which]
        row, piece = self.lane % 16, self.lane // 16
        self.x.fragments(rows, self.rows, stage, self.top + row, piece + 2 * step)
        row, piece = self.lane % 8 + self.lane // 16 * 8, self.lane // 8 % 2
        self.w.fragments(columns, self.columns, stage, self.left + row, piece + 2 * step)

    def multiply(self, which: int) -> None:
        """Add the products of the fragments in some registers to the sums."""
        rows, columns = self.fragments[which]
        across = 2 * self.columns
        with T.unroll(b.int32(self.rows)) as i, T.unroll(b.int32(across)) as j:
            sums = b.pointer(self.sums, (i * across + j) * 4)
            operands = b.pointer(rows, i * 4), b.pointer(columns, j * 2)
            b.do(b.call(MMA[self.x.matrix.dtype], sums, *operands))
