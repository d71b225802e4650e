"""Rows shared out to warps or to blocks, by their length, which is known when they are launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.ordering import Combine, Fold

THREADS = 256
WARPS = THREADS // b.WARP
# Rows up to this length are work for a warp; blocks take longer ones.
WARP_ROW = 1024


@dataclass(frozen=True, slots=True)
class Team:
    """The threads that work on one row together.

    Attributes:
        lane: Which of them this one is, int32.
        size: How many they are: a warp, or the threads of a block.
    """

    lane: b.Expr
    size: int

    def each(self, n: b.Index, body: Callable[[b.Expr], None]) -> None:
        """Run ``body(k)`` for every ``k`` below ``n``, neighbours on neighbouring threads."""
        lane = T.Cast("int64", self.lane)
        left = b.integer(n) + (self.size - 1) - lane
        with T.serial(b.index(b.quotient(left, self.size))) as step:
            body(step * self.size + lane)

    def reduce(self, value: b.Expr, combine: Combine, kind: str = "float32") -> b.Expr:
        """Combine a value of each thread; every one of them gets the result."""
        if self.size == b.WARP:
            return b.let(b.warp_reduce(value, combine, dtype=kind), 1, kind)
        partial = b.shared((self.size // b.WARP,), kind)
        return b.block_reduce(value, combine, self.lane, self.size, partial, dtype=kind)

    def barrier(self) -> None:
        """Wait until every thread is here, and see what each has written."""
        if self.size > b.WARP:
            b.barrier()

    def fold(self, read: Callable[[b.Expr], b.Expr], n: b.Index, kind: str, how: Fold) -> b.Expr:
        """``read(k)`` for every ``k`` below ``n`` combined into one; every thread gets it."""
        combine, neutral = how
        own = b.scratch((1,), kind)
        b.store(own, neutral(kind), (0,), 1)
        self.each(n, lambda k: b.store(own, combine(own[0], b.let(read(k), 1, kind)), (0,), 1))
        return self.reduce(own[0], combine, kind)


@contextmanager
def each_element(*sizes: b.Index) -> Iterator[list[b.Expr]]:
    """Launch a thread for each element of a shape; where it is, along each dimension."""
    count = b.integer(1)
    for size in sizes:
        count = count * b.integer(size)
    with b.launch([b.ceildiv(count, THREADS)], THREADS) as (block, thread):
        at = b.index(block * THREADS + T.Cast("int64", thread))
        with b.when(at < count):
            yield b.unravel(at, [b.integer(size) for size in sizes])


def each_row(rows: b.Expr, n: b.Expr, body: Callable[[b.Expr, Team], None]) -> None:
    """Launch ``body(row, team)`` for every row of ``n`` elements.

    It is emitted twice, for a warp and for a block: which of them runs, the length decides.
    """
    short = n <= WARP_ROW
    blocks = T.Select(short, b.ceildiv(rows, WARPS), rows)
    with b.launch([blocks], THREADS) as (block, thread):

        def by_warps() -> None:
            row = b.index(block * WARPS + T.Cast("int64", thread // b.WARP))
            with b.when(row < rows):
                body(row, Team(thread % b.WARP, b.WARP))

        b.either(short, by_warps, lambda: body(block, Team(thread, THREADS)))
