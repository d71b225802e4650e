"""A few rows times weights: bound by how fast the weights are read.

A block has some rows of the weights and of x, and its warps share k between them: chunk after
chunk, each warp the next one. What a thread multiplies, it has copied itself: the copies of several
chunks are under way together, in shared memory, where each thread has a place of its own, so that
no thread waits for another before the end. (In registers they would be under way only as long as
the compiler keeps the loads apart from their uses, which it does not.)

An H200 reads 4.8 TB/s with a latency of 0.6 to 0.8 us, which takes 22 to 29 KB of weights under way
in each of its 132 SMs (Little's law), and more when all of them ask at once. ``UNDER_WAY`` is what
one block has under way; with the rows of x beside it, a block takes some 100 KiB of shared memory,
so that an SM with 227 KiB runs two, and one with 163 KiB runs one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.matrix import PIECE_BYTES, PIECE_TYPE, Matrix

WARPS = 8
THREADS = WARPS * b.WARP
UNDER_WAY = 64 << 10  # bytes of weights

# What is done with the sums of one element, one for each matrix of weights: takes row and column
# within the block.
Finish: TypeAlias = Callable[[b.Expr, b.Expr, Sequence[b.Expr]], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread is.

    Attributes:
        thread: Its index.
        warp: The index of its warp.
        lane: Its index in the warp.
    """

    thread: b.Expr
    warp: b.Expr
    lane: b.Expr


# Keeps a sum of a warp: takes the row, the column, the matrix and the sum.
Keep: TypeAlias = Callable[[b.Expr, b.Expr, int, b.Expr], None]


@dataclass(frozen=True, slots=True)
class Form(ABC):
    """How a warp multiplies a chunk.

    Attributes:
        rows: Rows of x in a block.
        columns: Rows of each matrix of weights, columns of the result.
        chunk: Terms that a warp takes at a time.
    """

    rows: int
    columns: int
    chunk: int

    @abstractmethod
    def pieces(self, place: Place) -> tuple[b.Expr, list[b.Expr], list[b.Expr]]:
        """What the thread copies of a chunk.

        Returns:
            The first of its terms, its rows of x, and those of each matrix of weights.
        """

    @abstractmethod
    def sums(self, count: int) -> b.Buffer:
        """The registers of the sums for some matrices of weights, all 0."""

    @abstractmethod
    def load(self, memory: b.Buffer, place: tuple[b.Index, ...]) -> b.Buffer:
        """A piece that was copied, in registers."""

    @abstractmethod
    def multiply(self, held: Sequence[b.Buffer], sums: b.Buffer, dtype: str) -> None:
        """Add the products of a chunk: its pieces of x, then those of each matrix."""

    @abstractmethod
    def hand_out(self, sums: b.Buffer, place: Place, keep: Keep) -> None:
        """Give the warp's sums to ``keep``."""


def stages(form: Form, pieces: tuple[int, int], count: int, shared_memory: int) -> int:
    """How many chunks are under way.

    Args:
        form: How the warps multiply.
        pieces: Pieces that a thread copies of each chunk: of x, and of all weights.
        count: Matrices of weights.
        shared_memory: Bytes that a block may have; the sums of the warps take some of them.
    """
    each = THREADS * PIECE_BYTES
    left = shared_memory - prod(_sums(form, count)) * 4
    return max(2, min(UNDER_WAY // (each * pieces[1]), left // (each * sum(pieces))))


def _sums(form: Form, count: int) -> tuple[int, ...]:
    """The shape of the sums of all warps; padded, so that fewer lanes meet in a bank."""
    return WARPS, count, form.rows, form.columns + 4


def few_rows(
    form: Form,
    x: Matrix,
    weights: Sequence[Matrix],
    first: tuple[b.Expr, b.Expr],
    thread: b.Expr,
    finish: Finish,
    shared_memory: int,
) -> None:
    """Emit what one block does.

    Args:
        form: How its warps multiply.
        x: The rows, in the type of the weights.
        weights: Matrices of the same shape, each multiplied by x.
        first: The block's first row and its first column.
        thread: The index of the thread.
        finish: Called for each element of the block, those that do not exist included.
        shared_memory: Bytes that the block may have.
    """
    place = Place(
        thread,
        b.let(thread // b.WARP, dtype="int32"),
        b.let(thread % b.WARP, dtype="int32"),
    )
    term, rows, columns = form.pieces(place)
    sources = [(x, x.inside(first[0] + row)) for row in rows]
    sources += [(one, one.inside(first[1] + column)) for one in weights for column in columns]
    sums = form.sums(len(weights))
    start = b.index(place.warp * form.chunk + term)
    pieces = len(rows), len(sources) - len(rows)
    under_way = stages(form, pieces, len(weights), shared_memory)
    _stream(form, sources, under_way, (start, thread), sums)
    _add_up(form, sums, (place, len(weights)), finish)


def _stream(
    form: Form,
    sources: Sequence[tuple[Matrix, b.Expr]],
    count: int,
    at: tuple[b.Expr, b.Expr],
    sums: b.Buffer,
) -> None:
    """Copy and multiply chunk after chunk, ``count`` of them under way."""
    x, _ = sources[0]
    start, thread = at
    memory = b.shared((count, len(sources), THREADS, x.piece), PIECE_TYPE[x.dtype], dynamic=True)
    step = form.chunk * WARPS
    chunks = b.index(b.ceildiv(x.terms, step))

    def copy(chunk: b.Index, slot: b.Expr) -> None:
        k = b.index(start + chunk * step)
        for index, (matrix, row) in enumerate(sources):
            matrix.copy(memory, (slot, index, thread, 0), row, k)
        b.do(b.call("mt_cp_async_commit"))

    for stage in range(count):
        copy(stage, b.int32(stage))
    with T.serial(chunks) as chunk:
        slot = b.let(T.Cast("int32", b.remainder(chunk, count)), dtype="int32")
        b.do(b.call("mt_cp_async_wait", b.int32(count - 1)))
        held = [form.load(memory, (slot, index, thread, 0)) for index in range(len(sources))]
        form.multiply(held, sums, x.dtype)
        copy(chunk + count, slot)
    b.do(b.call("mt_cp_async_wait", b.int32(0)))


def _add_up(form: Form, sums: b.Buffer, at: tuple[Place, int], finish: Finish) -> None:
    """Add the sums of the warps, in their order, and finish each element."""
    place, count = at
    partial = b.shared(_sums(form, count))

    def keep(row: b.Expr, column: b.Expr, index: int, value: b.Expr) -> None:
        b.store(partial, value, (place.warp, index, row, column), 1)

    form.hand_out(sums, place, keep)
    b.barrier()
    with b.when(place.thread < form.rows * form.columns):
        row, column = place.thread // form.columns, place.thread % form.columns
        totals = [_total(partial, (index, row, column)) for index in range(count)]
        finish(T.Cast("int64", row), T.Cast("int64", column), totals)


def _total(partial: b.Buffer, place: tuple[b.Index, ...]) -> b.Expr:
    total = b.scratch((1,))
    b.store(total, partial[(0, *place)], (0,), 1)
    for warp in range(1, WARPS):
        b.store(total, total[0] + partial[(warp, *place)], (0,), 1)
    return total[0]
