"""Many rows times 16-bit weights: tiles of the result on tensor cores.

The stages of both operands wait in shared memory, filled by ``cp.async`` while earlier ones are
multiplied. A row of a stage is 64 terms: 128 bytes, all banks once. Its eight pieces of 16 bytes
are stored at their number xor the row's last three bits, so that eight rows of one piece, which is
what ``ldmatrix`` reads at a time, lie in different banks, and so do the eight pieces of a row,
which is what eight threads write.

Each k16 step of a 64 x 64 warp tile is 8 ldmatrix for 32 mma: 4 KiB read from shared memory for
65,536 multiply-adds. A warp's fragments of the next step are loaded before it multiplies this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.matrix import MMA, WORDS, Matrix

DEPTH = 64  # terms of a stage
PIECES = 8  # in a row of a stage
STEP = 16  # terms of an mma

# What is done with two neighbouring sums: takes the row and the first column within the tile, the
# registers, and which of them is the first.
Finish: TypeAlias = Callable[[b.Expr, b.Expr, b.Buffer, int], None]


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block computes a part of the result.

    Attributes:
        rows: Rows of the part, a multiple of 16 for each warp.
        columns: Columns, likewise.
        warps: How many warps share the rows, and how many the columns.
        stages: Stages in shared memory.
    """

    rows: int
    columns: int
    warps: tuple[int, int]
    stages: int

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

    def within(self, shared_memory: int) -> Tile:
        """The same with as many stages as fit into so many bytes."""
        stages = shared_memory // (self.shared_memory // self.stages)
        return replace(self, stages=min(self.stages, stages))


@dataclass(frozen=True, slots=True)
class _Staged:
    """One operand: where it comes from, and its stages in shared memory.

    Attributes:
        matrix: Where it comes from.
        sources: The rows that this thread copies, one of ``threads / 8`` each.
        memory: ``[stages, rows, words]``, of both operands.
        first: The operand's first row of each stage, a multiple of 8.
        count: How many rows it has there.
        thread: The index of the thread.
    """

    matrix: Matrix
    sources: list[b.Expr]
    memory: b.Buffer
    first: int
    count: int
    thread: b.Expr

    def copy(self, stage: b.Expr, k: b.Expr) -> None:
        """Begin to copy the terms from ``k`` on."""
        row, piece = self.thread // PIECES, self.thread % PIECES
        place = (piece ^ (row % PIECES)) * WORDS
        each = self.count // len(self.sources)
        term = b.index(k + piece * (DEPTH // PIECES))
        for index, source in enumerate(self.sources):
            to = (stage, row + (self.first + index * each), place)
            self.matrix.copy(self.memory, to, source, term)

    def fragment(
        self, into: b.Buffer, offset: int, stage: b.Expr, row: b.Expr, piece: b.Expr
    ) -> None:
        """Load four 8 x 8 matrices; ``row`` and ``piece`` are those that this lane points at."""
        place = (piece ^ (row % PIECES)) * WORDS
        source = b.pointer(self.memory, stage, row + self.first, place)
        b.do(b.call("mt_ldmatrix_x4", b.pointer(into, offset), source))


def tile_product(
    tile: Tile,
    operands: tuple[Matrix, Matrix],
    sources: tuple[Callable[[b.Expr], b.Expr], Callable[[b.Expr], b.Expr]],
    thread: b.Expr,
    finish: Finish,
) -> None:
    """Emit what one block does.

    Args:
        tile: The block's part, and how its warps share it.
        operands: x and the weights, both of one 16-bit type.
        sources: From a row of the part, and from a column, to the row of x or of the weights to
            read; there is always one.
        thread: The index of the thread.
        finish: Called for all pairs of sums, those that do not exist included.
    """
    shape = tile.stages, tile.rows + tile.columns, PIECES * WORDS
    memory = b.shared(shape, "uint32", dynamic=True)
    x = _staged(tile, operands[0], sources[0], (memory, 0, tile.rows), thread)
    w = _staged(tile, operands[1], sources[1], (memory, tile.rows, tile.columns), thread)
    warp = b.let(thread // b.WARP, dtype="int32")
    corner = (
        b.let(warp % tile.warps[0] * tile.warp_rows, dtype="int32"),
        b.let(warp // tile.warps[0] * tile.warp_columns, dtype="int32"),
    )
    part = _Warp(tile, x, w, corner, thread % b.WARP)
    _run(tile, (x, w), operands[0].terms, part)
    part.finish(finish)


def _staged(
    tile: Tile,
    matrix: Matrix,
    source: Callable[[b.Expr], b.Expr],
    place: tuple[b.Buffer, int, int],
    thread: b.Expr,
) -> _Staged:
    memory, first, count = place
    sources = [
        b.index(source(T.Cast("int64", thread // PIECES + start)))
        for start in range(0, count, tile.threads // PIECES)
    ]
    return _Staged(matrix, sources, memory, first, count, thread)


def _run(tile: Tile, operands: tuple[_Staged, _Staged], terms: b.Expr, part: _Warp) -> None:
    """Copy and multiply, stage after stage; copies are ``stages - 1`` ahead."""
    count = b.index(b.ceildiv(terms, DEPTH))

    def copy(index: b.Expr, slot: b.Expr) -> None:
        with b.when(index < count):
            for operand in operands:
                operand.copy(slot, index * DEPTH)
        b.do(b.call("mt_cp_async_commit"))

    def wait() -> None:
        b.do(b.call("mt_cp_async_wait", b.int32(tile.stages - 2)))
        b.barrier()

    for stage in range(tile.stages - 1):
        copy(b.integer(stage), b.int32(stage))
    slot, last = b.scratch((1,), "int32"), tile.stages - 1
    b.store(slot, b.int32(0), (0,), 1)
    wait()
    with b.when(count > 0):
        part.load(slot[0], 0)
    with T.serial(count) as index:
        following = b.let(T.Select(slot[0] == last, b.int32(0), slot[0] + 1), dtype="int32")

        def ahead(index: b.Expr = index, following: b.Expr = following) -> None:
            wait()
            with b.when(index + 1 < count):
                part.load(following, 0)

        # Everyone has read what was there: that was before the last wait.
        free = T.Select(slot[0] == 0, b.int32(last), slot[0] - 1)
        copy(index + last, b.let(free, dtype="int32"))
        part.multiply(slot[0], ahead)
        b.store(slot, following, (0,), 1)


class _Warp:
    """One warp's part of the tile.

    Args:
        tile: The block's tile.
        x: The first operand.
        w: The second operand.
        corner: The first row and column of the part, within the tile.
        lane: The thread's index within the warp.
    """

    def __init__(
        self, tile: Tile, x: _Staged, w: _Staged, corner: tuple[b.Expr, b.Expr], lane: b.Expr
    ) -> None:
        self.x, self.w, self.corner, self.lane = x, w, corner, lane
        self.rows, self.columns = tile.warp_rows // 16, tile.warp_columns // 16
        self.sums = b.scratch((self.rows * self.columns * 8,))
        for place in range(self.rows * self.columns * 8):
            b.store(self.sums, T.float32(0), (place,), 1)
        self.fragments = [
            (b.scratch((self.rows * 4,), "uint32"), b.scratch((self.columns * 4,), "uint32"))
            for _ in range(2)
        ]

    def multiply(self, stage: b.Expr, ahead: Callable[[], None]) -> None:
        """Add the products of a stage, of which the first fragments are there, to the sums.

        Args:
            stage: Which.
            ahead: Waits for the next stage and loads its first fragments; while it waits, the
                tensor cores are busy with the last but one of this stage.
        """
        steps = DEPTH // STEP
        for step in range(steps):
            if step + 1 < steps:
                self.load(stage, step + 1)
            else:
                ahead()
            self._multiply(step)

    def load(self, stage: b.Expr, step: int) -> None:
        """Load the fragments of 16 terms.

        ldmatrix takes the addresses of the rows of its four matrices from lanes 0-7, 8-15, 16-23
        and 24-31. For mma these are, of x, rows 0-7 and 8-15 of the first eight terms, then of the
        others; of the weights, the first and the other eight terms of rows 0-7, then of 8-15.
        """
        rows, columns = self.fragments[step % 2]
        top, left = self.corner
        row, piece = self.lane % 16, self.lane // 16
        for index in range(self.rows):
            at = (top + row + 16 * index, piece + 2 * step)
            self.x.fragment(rows, 4 * index, stage, *at)
        row, piece = self.lane % 8 + self.lane // 16 * 8, self.lane // 8 % 2
        for index in range(self.columns):
            at = (left + row + 16 * index, piece + 2 * step)
            self.w.fragment(columns, 4 * index, stage, *at)

    def _multiply(self, step: int) -> None:
        rows, columns = self.fragments[step % 2]
        for i in range(self.rows):
            for j in range(2 * self.columns):
                sums = b.pointer(self.sums, 4 * (i * 2 * self.columns + j))
                operands = b.pointer(rows, 4 * i), b.pointer(columns, 2 * j)
                b.do(b.call(MMA[self.x.matrix.dtype], sums, *operands))

    def finish(self, finish: Finish) -> None:
        """Hand out the sums, two at a time."""
        group, member = self.lane // 4, self.lane % 4
        top, left = self.corner
        for i in range(self.rows):
            for j in range(2 * self.columns):
                for half in range(2):
                    row = T.Cast("int64", top + group + (16 * i + 8 * half))
                    column = T.Cast("int64", left + member * 2 + 8 * j)
                    start = 4 * (i * 2 * self.columns + j) + 2 * half
                    finish(row, column, self.sums, start)
