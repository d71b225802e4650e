"""A few rows times weights: bound by how fast the weights are read.

A block has some rows of the weights and of x, and its warps share k between them: chunk after
chunk, each warp the next one. What a thread multiplies, it has copied itself: the copies of several
chunks are in flight together, in shared memory, where each thread has a place of its own, so that
no thread waits for another before the end. (In registers they would be in flight only as long as
the compiler keeps the loads apart from their uses, which it does not.)

An H200 reads 4.8 TB/s with a latency of 0.6 to 0.8 us, which takes 22 to 29 KB of weights in flight
in each of its 132 SMs (Little's law), and more when all of them ask at once. ``IN_FLIGHT`` is what
one block has in flight, where the rows of x beside it leave room for it in ``MEMORY``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.matrix import PIECE_BYTES, WORDS, Matrix

WARPS = 8
THREADS = WARPS * b.WARP
IN_FLIGHT = 64 << 10  # bytes of weights
MEMORY = 112 << 10  # bytes of shared memory: two blocks in an SM of 227 KiB
MIN_BLOCKS_PER_SM = 2  # blocks that an SM is to have registers for, as it has memory for no more

# What is done with the sums of one element, one for each matrix of weights: takes row and column
# within the block.
Epilogue: TypeAlias = Callable[[b.Expr, b.Expr, Sequence[b.Expr]], None]


@dataclass(frozen=True, slots=True)
class ThreadPosition:
    """Position of a thread in its block."""

    thread: b.Expr  # its index
    warp: b.Expr  # the index of its warp
    lane: b.Expr  # its index in the warp


# Keeps a sum of a warp: takes the row, the column, the matrix and the sum.
Keep: TypeAlias = Callable[[b.Expr, b.Expr, b.Index, b.Expr], None]


# The words of a piece that was copied, in registers.
Read: TypeAlias = Callable[[], b.Buffer]


@dataclass(frozen=True, slots=True)
class ChunkPieces:
    """Pieces of a chunk that a thread copies."""

    term: b.Expr  # the first of its terms
    x: Sequence[tuple[b.Expr, int]]  # of x, rows, and how far from that term
    columns: Sequence[b.Expr]  # rows of each matrix of weights


@dataclass(frozen=True, slots=True)
class ChunkProduct(ABC):
    """A warp's way to multiply a chunk."""

    rows: int  # rows of x in a block
    columns: int  # rows of each matrix of weights, columns of the result
    chunk: int  # terms that a warp takes at a time

    @property
    @abstractmethod
    def copies(self) -> tuple[int, int]:
        """Return the number of pieces of a chunk that a thread copies: of x, and of each matrix."""

    @abstractmethod
    def pieces(self, thread_position: ThreadPosition) -> ChunkPieces:
        """Return the pieces of a chunk that the thread copies."""

    @abstractmethod
    def sums(self, count: int) -> b.Buffer:
        """The registers of the sums for some matrices of weights, all 0."""

    @abstractmethod
    def multiply(self, read: Sequence[Read], sums: b.Buffer, dtype: str) -> None:
        """Add the products of a chunk: its pieces of x, then those of each matrix.

        Args:
            read: What gives each piece that was copied.
            sums: The registers.
            dtype: The type of the weights.
        """

    @abstractmethod
    def hand_out(self, sums: b.Buffer, thread_position: ThreadPosition, keep: Keep) -> None:
        """Pass the warp's sums to ``keep``."""


@dataclass(frozen=True, slots=True)
class SharedStages:
    """The shared memory of a block."""

    copies: b.Buffer  # ``[stages, pieces, THREADS, words]``: what is copied
    # ``[WARPS, matrices, rows, columns]``: those of all warps; padded, so that fewer lanes meet in
    # a bank.
    sums: b.Buffer


def shared_stages(form: ChunkProduct, count: int, shared_memory: int) -> SharedStages:
    """Shared memory for ``gemv_block``.

    Args:
        form: How the warps multiply.
        count: Matrices of weights that are multiplied at once.
        shared_memory: Bytes that a block may have.
    """
    own, each = form.copies
    pieces, chunk = own + count * each, THREADS * PIECE_BYTES
    sums = WARPS, count, form.rows, form.columns + 4
    left = min(shared_memory, MEMORY) - prod(sums) * 4
    stages = max(2, min(IN_FLIGHT // (chunk * count * each), left // (chunk * pieces)))
    copies = b.shared((stages, pieces, THREADS, WORDS), "uint32", dynamic=True)
    return SharedStages(copies, b.shared(sums))


def gemv_block(
    form: ChunkProduct,
    x: Matrix,
    weights: Sequence[Matrix],
    first: tuple[b.Expr, b.Expr],
    thread: b.Expr,
    epilogue: Epilogue,
    memory: SharedStages,
) -> None:
    """Emit what one block does.

    Args:
        form: How its warps multiply.
        x: The rows, in the type of the weights, or in float32 if the form rounds them.
        weights: Matrices of the same shape, each multiplied by x.
        first: The block's first row and its first column.
        thread: The index of the thread.
        epilogue: Called for each element of the block, those that do not exist included.
        memory: What ``bench`` made for the form and as many matrices.
    """
    place = ThreadPosition(
        thread,
        b.let(thread // b.WARP),
        b.let(thread % b.WARP),
    )
    pieces = form.pieces(place)
    sources = [_Source(x, x.inside(first[0] + row), offset) for row, offset in pieces.x]
    sources += [
        _Source(weight, weight.inside(first[1] + column), 0)
        for weight in weights
        for column in pieces.columns
    ]
    sums = form.sums(len(weights))
    start = b.index(place.warp * form.chunk + pieces.term)
    _stream(form, sources, memory.copies, (start, thread), sums)
    _add_up(form, sums, place, memory.sums, epilogue)


@dataclass(frozen=True, slots=True)
class _Source:
    """A row that a thread copies pieces of, and how far they are from its terms."""

    matrix: Matrix
    row: b.Expr
    offset: int


def _stream(
    form: ChunkProduct,
    sources: Sequence[_Source],
    memory: b.Buffer,
    at: tuple[b.Expr, b.Expr],
    sums: b.Buffer,
) -> None:
    """Copy and multiply chunk after chunk, as many in flight as the memory has stages.

    One loop, which begins to multiply when copies into all stages are in flight: the code of a copy
    is there once. NVIDIA's compiler would take the first turns out of it, each by itself.
    """
    count = int(memory.shape[0])
    start, thread = at
    terms, dtype = sources[0].matrix.terms, sources[-1].matrix.dtype
    step = form.chunk * WARPS
    ahead = count - 1

    def copy(chunk: b.Index, slot: b.Expr) -> None:
        k = b.index(start + chunk * step)
        for index, source in enumerate(sources):
            source.matrix.copy(memory, (slot, index, thread, 0), source.row, k + source.offset)
        b.do(b.call("mt_cp_async_commit"))

    def read(slot: b.Expr, index: int) -> Read:
        return lambda: ln.fetch(memory, (slot, index, thread, 0), WORDS, "float32")

    slot = b.scratch((1,), "int32")
    b.store(slot, b.int32(0), (0,))
    with T.serial(b.index(b.ceildiv(terms, step) + ahead), unroll=False) as chunk:
        copy(chunk, slot[0])
        b.store(slot, T.Select(slot[0] == ahead, b.int32(0), slot[0] + 1), (0,))
        with b.when(chunk >= ahead):
            b.do(b.call("mt_cp_async_wait", b.int32(ahead)))
            form.multiply([read(slot[0], index) for index in range(len(sources))], sums, dtype)
    b.do(b.call("mt_cp_async_wait", b.int32(0)))


def _add_up(
    form: ChunkProduct,
    sums: b.Buffer,
    thread_position: ThreadPosition,
    partial: b.Buffer,
    epilogue: Epilogue,
) -> None:
    """Add the sums of the warps, in their order, and finish each element."""

    def keep(row: b.Expr, column: b.Expr, index: b.Index, value: b.Expr) -> None:
        b.store(partial, value, (thread_position.warp, index, row, column))

    form.hand_out(sums, thread_position, keep)
    b.barrier()
    with b.when(thread_position.thread < form.rows * form.columns):
        row, column = thread_position.thread // form.columns, thread_position.thread % form.columns
        totals = [_total(partial, (index, row, column)) for index in range(int(partial.shape[1]))]
        epilogue(T.Cast("int64", row), T.Cast("int64", column), totals)


def _total(partial: b.Buffer, index: tuple[b.Index, ...]) -> b.Expr:
    total = b.cell(partial[(0, *index)])
    for warp in range(1, WARPS):
        total.add(partial[(warp, *index)])
    return total.value
