"""Rows shared out to warps or to blocks, by their length, which is known when they are launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.backend import Before, Body, Element, Emit, Load, Read
from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.first_element import SharedFirstElement
from maxtool.compiler.kernels.element_order import Combine, Fold
from maxtool.compiler.kernels.first_element import Ahead, FirstElement

THREADS = 256
WARPS = THREADS // b.WARP
# Blocks of a multiprocessor while it works on rows: threads have 64 registers.
MIN_BLOCKS_PER_SM = 4
# Rows up to this length are work for a warp; blocks take longer ones.
WARP_ROW = 1024
# Loads of a thread that are in flight while a row is swept.
AHEAD = 4


@dataclass(frozen=True, slots=True)
class ThreadGroup:
    """The threads that work on one row together."""

    lane: b.Expr  # which of them this one is, int32
    size: int  # how many they are: a warp, or the threads of a block
    # Whether they are one warp after all, if that is known at run time only.
    single: b.Expr | None = None
    width: int = 1  # neighbours that a thread moves together, of a row whose length is a number

    def _by_size(self, of: Callable[[int], b.Expr]) -> b.Expr:
        """Emit a value that depends on the number of threads."""
        whole = of(self.size)
        return whole if self.single is None else T.Select(self.single, of(b.WARP), whole)

    def each(
        self, n: b.Index, body: Callable[[b.Expr], None], *, unroll: bool | None = None
    ) -> None:
        """Run ``body(k)`` for every ``k`` below ``n``, neighbours on neighbouring threads.

        NVIDIA's compiler makes several turns one, unless ``unroll`` is False.
        """
        if isinstance(n, int):
            ln.strided(n, self.lane, self.size, body)
            return
        lane = T.Cast("int64", self.lane)
        left = b.index(b.integer(n) - lane)
        turns = b.index(self._by_size(lambda size: b.ceildiv(left, size)))
        size = b.index(self._by_size(b.integer))
        with T.serial(turns, unroll=unroll) as turn:
            body(turn * size + lane)

    def each_vector(self, n: b.Index, body: Body) -> None:
        """Run ``body(k, width)`` for all ``n`` elements; one by one, if ``n`` is not a number."""
        if not isinstance(n, int):
            self.each(n, lambda k: body(k, 1))
            return
        self.each(n // self.width, lambda unit: body(b.index(unit * self.width), self.width))

    def each_group(self, count: int, size: b.Expr, load: Load, body: Emit) -> None:
        """Run ``body(k, 1, *load(g))`` for every element, of whichever group it is."""
        self.each(count * size, lambda k: body(k, 1, *load(b.quotient(k, size))))

    def stream(self, n: b.Index, dtypes: Sequence[str], load: Load, body: Emit) -> None:
        """Run ``body(k, *load(k))`` for every ``k`` below ``n``, of which there is one at least.

        What is loaded waits in registers for ``AHEAD`` turns of the thread, so that as many loads
        are in flight; the body is compiled once. What it has of places beyond the last is not used.
        """
        queues = [b.scratch((AHEAD,), dtype) for dtype in dtypes]
        with T.unroll(b.int32(AHEAD)) as slot:
            for queue, dtype in zip(queues, dtypes, strict=True):
                b.store(queue, tirx.const(0, dtype), (slot,))
        ahead = b.index(self._by_size(lambda size: b.integer(AHEAD * size)))

        def turn(k: b.Expr) -> None:
            now = [b.let(queue[0]) for queue, dtype in zip(queues, dtypes, strict=True)]
            loaded = load(b.index(b.least(k, n - 1)))
            for queue, one in zip(queues, loaded, strict=True):
                with T.unroll(b.int32(AHEAD - 1)) as slot:
                    b.store(queue, queue[slot + 1], (slot,))
                b.store(queue, one, (AHEAD - 1,))
            with b.when(k >= ahead):
                body(b.index(k - ahead), *now)

        self.each(n + ahead, turn, unroll=False)

    def reduce(
        self, value: b.Expr, combine: Combine, dtype: str = "float32", *, rolled: bool = True
    ) -> b.Expr:
        """Combine a value of each thread, as ``warp_reduce``; every one of them gets the result."""
        held = b.let(b.warp_reduce(value, combine, dtype=dtype, rolled=rolled))
        if self.size == b.WARP:
            return held
        partial, total = b.shared((self.size // b.WARP,), dtype), b.cell(dtype=dtype)
        total.set(held)
        with self.several():
            joined = b.join_warps(held, combine, self.lane, partial, dtype, rolled=rolled)
            total.set(joined)
        return total.value

    @contextmanager
    def several(self) -> Iterator[None]:
        """Emit code inside this block only for groups of several warps."""
        if self.single is None:
            yield
            return
        with b.when(tirx.Not(self.single)):
            yield

    def barrier(self) -> None:
        """Wait until every thread is here, and see what each has written."""
        if self.size > b.WARP:
            with self.several():
                b.barrier()

    def fold(self, read: Read, n: b.Index, dtype: str, how: Fold) -> b.Expr:
        """Combine ``read(k, 1)`` for every ``k`` below ``n`` into one; every thread gets it."""
        combine, neutral = how
        own = b.cell(neutral(dtype))
        self.each(n, lambda k: own.set(combine(own.value, b.let(read(k, 1)))))
        return self.reduce(own.value, combine, dtype)

    def running_sums(self, n: b.Expr, read: Element, write: Emit, dtype: str) -> None:
        """Add up 32 elements at a time, each to those before it."""
        zero = tirx.const(0, dtype)
        total = b.cell(zero)
        with T.serial(b.index(b.ceildiv(n, b.WARP))) as step:
            k = b.index(step * b.WARP + T.Cast("int64", self.lane))
            own = b.cell(zero)
            with b.when(k < n):
                own.set(read(k))
            ahead = b.warp_scan(own.value, self.lane, dtype)
            before = b.let(total.value + ahead)
            after = b.let(before + own.value)
            with b.when(k < n):
                write(k, before, after)
            total.set(b.warp_value(after, b.WARP - 1))

    def merge_runs(
        self, n: b.Expr, run: b.Expr, read: Element, write: Emit, before: Before
    ) -> None:
        """Find each element's place among those of the run beside its own, by halving."""

        def insert(k: b.Expr) -> None:
            start = b.index(b.quotient(k, 2 * run) * (2 * run))
            middle, end = (b.index(b.least(start + step * run, n)) for step in (1, 2))
            left = b.let(k < middle)
            own = read(k)
            first = b.index(tirx.Select(left, middle, start))
            low, high = b.cell(first), b.cell(tirx.Select(left, end, middle))
            with T.While(low.value < high.value):
                half = b.index(b.quotient(low.value + high.value, 2))
                # Of equal ones those of the left run come first.
                b.either(
                    before(read(half), own, tirx.Not(left)),
                    lambda: low.set(half + 1),
                    lambda: high.set(half),
                )
            mine = b.index(k - tirx.Select(left, start, middle))
            write(start + mine + low.value - first, own)

        self.each(n, insert)

    def first(self, dtype: str, ahead: Ahead) -> FirstElement:
        """Return a search for the element of a row that comes first by an order."""
        return SharedFirstElement(self.lane, self.size, self.several, dtype, ahead)

    @contextmanager
    def once(self) -> Iterator[None]:
        """Emit what the first of the threads does."""
        with b.when(self.lane == 0):
            yield


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


def each_row(rows: b.Expr, n: b.Expr, body: Callable[[b.Expr, ThreadGroup], None]) -> None:
    """Launch ``body(row, threads)`` for every row of ``n`` elements.

    The threads are a warp or a block: which, the length decides when it is known.
    """
    short = n <= WARP_ROW
    blocks = T.Select(short, b.ceildiv(rows, WARPS), rows)
    with b.launch([blocks], THREADS, min_blocks_per_sm=MIN_BLOCKS_PER_SM) as (block, thread):
        single = b.let(short)
        warp, lane = T.Cast("int64", thread // b.WARP), thread % b.WARP
        row = b.index(T.Select(single, block * WARPS + warp, block))
        with b.when(row < rows):
            mine = b.let(T.Select(single, lane, thread))
            body(row, ThreadGroup(mine, THREADS, single))
