"""Products of a warp with a chunk of few rows: on tensor cores, or in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.elements import PACK
from maxtool.compiler.kernels.cuda.matrix import MMA

WARPS = 8
THREADS = WARPS * b.WARP
# What an SM is to have registers for, as it has memory for no more.
MIN_BLOCKS_PER_SM = 2

# The words of a piece that was copied, in registers.
Read: TypeAlias = Callable[[], b.Buffer]
# Keeps a sum of a warp: takes the sum, the matrix, the row and the column.
Keep: TypeAlias = Callable[[b.Expr, b.Index, b.Expr, b.Expr], None]


@dataclass(frozen=True, slots=True)
class ChunkPieces:
    """Pieces of a chunk that a thread copies."""

    term: b.Expr  # the first of its terms
    x: Sequence[tuple[b.Expr, int]]  # of x, rows, and how far from that term
    columns: Sequence[b.Expr]  # rows of each matrix of weights


@dataclass(frozen=True, slots=True)
class TensorCores:
    """Sixteen rows of 16-bit weights times eight of x, 32 terms at a time.

    The weights are the first operand of ``mma.m16n8k16`` and x is the second, so that one
    instruction serves up to eight rows. Sums over k do not depend on its order: the eight values of
    a piece are taken for those places of k that the instruction wants of the thread, of both
    operands alike. So each thread needs just the pieces that it has copied: of each row 64
    neighbouring bytes by four threads.
    """

    rows: int = 8  # of x in a block
    columns: int = 16  # of the result: rows of each matrix of weights
    chunk: int = 32  # terms that a warp takes at a time
    rounds: bool = False  # whether x is float32, and rounded to the type of the weights here
    threads: ClassVar[int] = THREADS
    min_blocks_per_sm: ClassVar[int] = MIN_BLOCKS_PER_SM

    @property
    def copies(self) -> tuple[int, int]:
        """Pieces of a chunk that a thread copies: of one row of x, and of two of each matrix."""
        return (2 if self.rounds else 1), 2

    def pieces(self, lane: b.Expr) -> ChunkPieces:
        """Group and member of the thread are those of the fragments in the PTX ISA."""
        group = lane // 4
        x = [(group, offset) for offset in ((0, 4) if self.rounds else (0,))]
        return ChunkPieces(lane % 4 * 8, x, [group, group + 8])

    def sums(self, count: int) -> b.Buffer:
        """Four for each matrix."""
        return ln.zeros(4 * count)

    def multiply(self, read: Sequence[Read], sums: b.Buffer, dtype: str) -> None:
        """Two instructions for each matrix."""
        own, _ = self.copies
        x = _rounded([one() for one in read[:own]], dtype) if self.rounds else read[0]()
        for index in range((len(read) - own) // 2):
            low, high = (one() for one in read[own + 2 * index : own + 2 * index + 2])
            for half in (0, 2):
                fragment = b.scratch((4,), "uint32")
                values = (low[half], high[half], low[half + 1], high[half + 1])
                for one, value in enumerate(values):
                    b.store(fragment, value, (one,))
                operands = b.pointer(fragment, 0), b.pointer(x, half)
                b.do(b.call(MMA[dtype], b.pointer(sums, 4 * index), *operands))

    def hand_out(self, sums: b.Buffer, lane: b.Expr, keep: Keep) -> None:
        """Each thread has four elements of each matrix."""
        group, member = lane // 4, lane % 4
        for index in range(int(sums.shape[0]) // 4):
            for element in range(4):
                row, column = member * 2 + element % 2, group + element // 2 * 8
                keep(sums[4 * index + element], index, row, column)


def _rounded(pieces: Sequence[b.Buffer], dtype: str) -> b.Buffer:
    """Two pieces of float32 as one of a 16-bit type."""
    words = b.scratch((4,), "uint32")
    for word in range(4):
        held = pieces[word // 2]
        pair = [T.reinterpret("float32", held[word % 2 * 2 + half]) for half in range(2)]
        b.store(words, b.call(PACK[dtype], *pair, returns="uint32"), (word,))
    return words


@dataclass(frozen=True, slots=True)
class Float32:
    """Four rows of float32 weights times one of x or a few, 128 terms at a time, added in float32.

    The lanes of a warp read 512 neighbouring bytes of each row, and add up what they have of it.
    """

    rows: int
    columns: int = 4
    chunk: int = 4 * b.WARP
    threads: ClassVar[int] = THREADS
    min_blocks_per_sm: ClassVar[int] = MIN_BLOCKS_PER_SM

    @property
    def copies(self) -> tuple[int, int]:
        """A piece of every row."""
        return self.rows, self.columns

    def pieces(self, lane: b.Expr) -> ChunkPieces:
        """A piece of every row."""
        x = [(b.int32(row), 0) for row in range(self.rows)]
        return ChunkPieces(lane * 4, x, list(map(b.int32, range(self.columns))))

    def sums(self, count: int) -> b.Buffer:
        """One for each row, matrix and column."""
        return ln.zeros(self.rows * count * self.columns)

    def multiply(self, read: Sequence[Read], sums: b.Buffer, dtype: str) -> None:
        """Four terms of each row and column."""
        held = [ln.unpack(one(), 4, dtype) for one in read]
        rows, columns = held[: self.rows], held[self.rows :]
        with T.unroll(b.int32(4)) as term:
            for at, (row, column) in enumerate(product(rows, columns)):
                b.store(sums, sums[at] + row[term] * column[term], (at,))

    def hand_out(self, sums: b.Buffer, lane: b.Expr, keep: Keep) -> None:
        """The sums of the lanes, added up."""
        total, at = _added_up(sums, lane)
        width = int(sums.shape[0]) // self.rows
        with b.when(lane % (b.WARP // int(sums.shape[0])) == 0):
            keep(total, at % width // self.columns, at // width, at % self.columns)


ChunkProduct: TypeAlias = TensorCores | Float32


def _added_up(sums: b.Buffer, lane: b.Expr) -> tuple[b.Expr, b.Expr]:
    """Add up each of some sums over the lanes of a warp.

    Of the sums that lanes have left, those whose numbers differ by one bit exchange halves, as long
    as there are several: fewer than two exchanges for each sum, where it takes five by itself.
    There are as many sums as a power of 2, up to 32. A lane gets one of the totals, and which:
    neighbouring lanes have the same, as many as share one.
    """
    held, distance = [sums[index] for index in range(int(sums.shape[0]))], b.WARP // 2
    while distance:
        upper = T.bitwise_and(lane, distance) != 0
        half = -(-len(held) // 2)  # of one sum, both halves are it
        held = [
            b.let(T.Select(upper, high, low) + b.warp_across(T.Select(upper, low, high), distance))
            for low, high in zip(held[:half], held[-half:], strict=True)
        ]
        distance //= 2
    return held[0], lane // (b.WARP // int(sums.shape[0]))
