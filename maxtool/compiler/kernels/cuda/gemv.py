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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.gemv_products import THREADS, WARPS, ChunkProduct, Read
from maxtool.compiler.kernels.cuda.matrix import PIECE_BYTES, WORDS, Pieces

IN_FLIGHT = 64 << 10  # bytes of weights
MEMORY = 112 << 10  # bytes of shared memory: two blocks in an SM of 227 KiB

# What is done with the sums of one element, one for each matrix of weights: takes row and column.
Epilogue: TypeAlias = Callable[[b.Expr, b.Expr, Sequence[b.Expr]], None]


@dataclass(frozen=True, slots=True)
class SharedStages:
    """The shared memory of a block."""

    copies: b.Buffer  # ``[stages, pieces, THREADS, words]``: what is copied
    # ``[WARPS, matrices, rows, columns]``: those of all warps; padded, so that fewer lanes meet in
    # a bank.
    sums: b.Buffer


def shared_stages(form: ChunkProduct, count: int, shared_memory: int) -> SharedStages:
    """Shared memory for ``gemv_block`` with ``count`` matrices, where a block may have so much."""
    own, each = form.copies
    pieces, chunk = own + count * each, THREADS * PIECE_BYTES
    sums = WARPS, count, form.rows, form.columns + 4
    left = min(shared_memory, MEMORY) - prod(sums) * 4
    stages = max(2, min(IN_FLIGHT // (chunk * count * each), left // (chunk * pieces)))
    copies = b.shared((stages, pieces, THREADS, WORDS), "uint32", dynamic=True)
    return SharedStages(copies, b.shared(sums))


def from_corner(corner: tuple[b.Expr, b.Expr], epilogue: Epilogue) -> Epilogue:
    """An epilogue in rows and columns of the result, for a block whose part begins at a corner."""

    def within(row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
        epilogue(b.index(corner[0] + row), b.index(corner[1] + column), sums)

    return within


def gemv_block(
    form: ChunkProduct,
    x: Pieces,
    weights: Sequence[Pieces],
    first: tuple[b.Expr, b.Expr],
    thread: b.Expr,
    epilogue: Epilogue,
    memory: SharedStages,
) -> None:
    """Emit what the block does that multiplies rows and columns from ``first`` on.

    The matrices of weights have one shape; x is of their type, or float32 if the form rounds it.
    The epilogue gets rows and columns of the block, those that do not exist included.
    """
    warp, lane = b.let(thread // b.WARP), b.let(thread % b.WARP)
    pieces = form.pieces(lane)
    row_of, columns_of = x.source(first[0]), [weight.source(first[1]) for weight in weights]
    sources = [_Source(x, row_of(row), offset) for row, offset in pieces.x]
    sources += [
        _Source(weight, column_of(column), 0)
        for weight, column_of in zip(weights, columns_of, strict=True)
        for column in pieces.columns
    ]
    sums = form.sums(len(weights))
    start = b.index(warp * form.chunk + pieces.term)
    _stream(form, sources, memory.copies, (start, thread), sums)
    form.hand_out(sums, lane, lambda value, *at: b.store(memory.sums, value, (warp, *at)))
    b.barrier()
    with b.when(thread < form.rows * form.columns):
        row, column = thread // form.columns, thread % form.columns
        totals = [_total(memory.sums, (index, row, column)) for index in range(len(weights))]
        epilogue(T.Cast("int64", row), T.Cast("int64", column), totals)


@dataclass(frozen=True, slots=True)
class _Source:
    """A row that a thread copies pieces of, and how far they are from its terms."""

    matrix: Pieces
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
    (start, thread), step, ahead = at, form.chunk * WARPS, int(memory.shape[0]) - 1
    terms, dtype = sources[0].matrix.terms, sources[-1].matrix.dtype

    def copy(chunk: b.Index, slot: b.Expr) -> None:
        k = b.index(start + chunk * step)
        for index, source in enumerate(sources):
            source.matrix.copy(memory, (slot, index, thread, 0), source.row, k + source.offset)
        b.do(b.call("mt_cp_async_commit"))

    def read(slot: b.Expr, index: int) -> Read:
        return lambda: ln.fetch(memory, (slot, index, thread, 0), WORDS, "float32")

    slot = b.cell(b.int32(0))
    with T.serial(b.index(b.ceildiv(terms, step) + ahead), unroll=False) as chunk:
        copy(chunk, slot.value)
        slot.set(T.Select(slot.value == ahead, b.int32(0), slot.value + 1))
        with b.when(chunk >= ahead):
            b.do(b.call("mt_cp_async_wait", b.int32(ahead)))
            form.multiply([read(slot.value, index) for index in range(len(sources))], sums, dtype)
    b.do(b.call("mt_cp_async_wait", b.int32(0)))


def _total(partial: b.Buffer, index: tuple[b.Index, ...]) -> b.Expr:
    """The sum of what the warps have of an element, in their order."""
    total = b.cell(partial[(0, *index)])
    for warp in range(1, WARPS):
        total.add(partial[(warp, *index)])
    return total.value
