"""Attention in tiles on tensor cores, for keys and values of 16 bits.

Four warps have 16 rows each, and share tiles of 64 keys (32 where heads are wide). Queries are
rounded to the type of the keys and stay in registers as fragments of ``mma.m16n8k16``, up to 128
elements; wider ones wait in shared memory. The scores of a tile are its sums; scaled, hidden where
they must be, and turned into powers in float32, they are rounded to that type and are the left
fragments of the product with the values without another move: of a sum's registers and a left
operand's the rows and columns are the same. Maxima and sums of powers are float32. This rounding is
what FlashAttention-2 (Dao, 2023, arXiv 2307.08691) does too, whose order of loops this is.

The values of a tile are on their way (``cp.async``) while its scores are computed, and the keys of
the next while the values are added. Rows in shared memory are 16 bytes longer than they need be: an
odd number of 16 bytes, so that the eight rows that ``ldmatrix`` reads at a time lie in different
banks. A warp reads 32 KiB of a 128-wide tile for 128 products of 16 x 8 x 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.attention_scores import HIDDEN
from maxtool.compiler.kernels.cuda.elements import PACK
from maxtool.compiler.kernels.cuda.flash import STATIC, AttentionOperands, QueryTile, tiles
from maxtool.compiler.kernels.cuda.matrix import MMA
from maxtool.compiler.kernels.kernel_options import HeadSizes

WARPS = 4
THREADS = WARPS * b.WARP
STEP = 16  # terms of a product, and rows of a warp
ROWS = WARPS * STEP
PIECE = 8  # elements of 16 bytes
WIDE = 128  # elements of a query beyond which it does not stay in registers
MASKED = 64  # elements beyond which a block with a mask needs more registers than three may have
WIDEST = 256


@dataclass(frozen=True, slots=True)
class TileLayout:
    """Size of a tile, and the memory of its operands."""

    heads: HeadSizes  # widths of keys and values
    dtype: str  # the type of keys and values

    @property
    def widest(self) -> int:
        """Elements of a key or of a value, whichever are more."""
        return max(self.heads.key_dim, self.heads.value_dim)

    @property
    def is_wide(self) -> bool:
        """Return whether queries or results take so many registers that others must spare some."""
        return self.widest > WIDE

    def min_blocks_per_sm(self, *, masked: bool) -> int:
        """Blocks of a multiprocessor: three, whose threads have 168 registers, or two with 255."""
        return 2 if self.widest > (MASKED if masked else WIDE) else 3

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return 32 if self.is_wide else 64

    @property
    def memory(self) -> tuple[int, int]:
        """Rows of shared memory, keys, values, then queries that wait; and elements of a row."""
        rows = 2 * self.keys + (ROWS if self.is_wide else 0)
        return rows, self.widest + PIECE

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory."""
        rows, pitch = self.memory
        return 2 * rows * pitch

    def fits(self, shared_memory: int) -> bool:
        """Return whether tensor cores take it, and a block has room for it."""
        widths = (self.heads.key_dim, self.heads.value_dim)
        known = self.dtype in MMA and all(n % STEP == 0 and n <= WIDEST for n in widths)
        return known and self.shared_memory <= shared_memory


def flash_mma(problem: AttentionOperands, form: TileLayout) -> None:
    """Emit attention in tiles."""
    min_blocks_per_sm = form.min_blocks_per_sm(masked=problem.mask is not None)
    with tiles(problem, ROWS, THREADS, min_blocks_per_sm) as (tile, thread):
        _Block(form, tile, thread).run()


class _Block:
    """State of a block, and its steps."""

    def __init__(self, form: TileLayout, tile: QueryTile, thread: b.Expr) -> None:
        self.problem, self.form, self.tile, self.thread = tile.problem, form, tile, thread
        heads = form.heads
        # One buffer: TVM's pass that merges several sees no use of those that only PTX touches.
        self.memory = b.shared(form.memory, "uint16", dynamic=form.shared_memory > STATIC)
        self.values, self.waiting = form.keys, 2 * form.keys  # their first rows
        if not form.is_wide:
            self.queries = b.scratch((heads.key_dim // STEP * 4,), "uint32")
        self.lane = b.let(thread % b.WARP)
        self.warp_row = b.let(thread // b.WARP * STEP)
        # Of each 8 columns two rows of two neighbours.
        self.scores = b.scratch((form.keys // 8, 2, 2))
        self.out = b.scratch((heads.value_dim // 8, 2, 2))
        self.top, self.total = b.scratch((2,)), b.scratch((2,))
        own = [self.warp_row + self.lane // 4 + 8 * half for half in range(2)]
        self.rows = [b.let(row) for row in own]
        self.places = [tile.split(row) for row in self.rows]  # head and query
        self.limits = [tile.limits(query) for _, query in self.places]

    def run(self) -> None:
        """Emit the whole block."""
        tile, size, heads = self.tile, self.form.keys, self.form.heads
        self._start()
        count = b.index(b.ceildiv(b.greatest(tile.end - tile.begin, 0), size))
        with b.when(count > 0):
            self._copy(0, heads.key_dim, self.problem.k, tile.begin)
        b.do(b.call("mt_cp_async_commit"))
        with T.serial(count) as step:
            first = b.index(tile.begin + step * size)
            _arrived(0)
            self._copy(self.values, heads.value_dim, self.problem.v, first)
            b.do(b.call("mt_cp_async_commit"))
            self._score()
            b.barrier()
            with b.when(step + 1 < count):
                self._copy(0, heads.key_dim, self.problem.k, first + size)
            b.do(b.call("mt_cp_async_commit"))
            self._hide(first, b.let(T.Cast("int32", step * size)))
            for half in range(2):
                self._take(half)
            _arrived(1)
            self._add()
        for half in range(2):
            self._finish(half)

    def _start(self) -> None:
        """Load the queries; begin with nothing seen."""
        _clear(self.out)
        with T.unroll(b.int32(2)) as half:
            b.store(self.top, T.float32(HIDDEN), (half,))
            b.store(self.total, T.float32(0), (half,))
        if self.form.is_wide:
            self._wait_shared()
            return
        with T.unroll(b.int32(self.form.heads.key_dim // STEP)) as step:
            for register in range(4):
                column = step * STEP + register // 2 * 8 + self.lane % 4 * 2
                low, high = self._query(register % 2, column)
                packed = b.call(PACK[self.form.dtype], low, high, returns="uint32")
                b.store(self.queries, packed, (step * 4 + register,))

    def _query(self, half: int, column: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Two neighbours of a query, in float32."""
        problem, dtype = self.problem, self.problem.types[0]
        offsets = problem.place(self.tile.at, *self.places[half])
        if dtype == "float32":
            pair = ln.read(problem.q, (*offsets, column), 2, dtype)
            return pair[0], pair[1]
        low, high = (ln.read(problem.q, (*offsets, column + i), 1, dtype)[0] for i in range(2))
        return low, high

    def _wait_shared(self) -> None:
        """Copy the queries into shared memory, rounded."""
        problem, dtype = self.problem, self.problem.types[0]
        units = self.form.heads.key_dim // 4
        with T.serial(b.int32(ROWS * units // THREADS)) as step:
            index = b.let(step * THREADS + self.thread)
            row = b.let(T.truncdiv(index, b.int32(units)))
            column = b.let((index - row * units) * 4)
            offsets = problem.place(self.tile.at, *self.tile.split(row))
            numbers = ln.read(problem.q, (*offsets, column), 4, dtype)
            ln.write(self.memory, numbers, (self.waiting + row, column), 4, self.form.dtype)

    def _copy(self, target: int, width: int, source: b.Buffer, first: b.Expr) -> None:
        """Start copying a tile; rows that nobody reads become 0, whatever they hold."""
        pieces = width // PIECE
        whole, rest = divmod(self.form.keys * pieces, THREADS)

        def copy(turn: b.Expr) -> None:
            if THREADS % pieces == 0:  # each thread stays in its column
                row = self.thread // pieces + turn * (THREADS // pieces)
                column = self.thread % pieces
            else:
                index = self.thread + turn * THREADS
                row, column = index // pieces, index % pieces
            key = b.index(first + row)
            inside = b.index(b.least(key, self.problem.keys - 1))
            nbytes = T.Select(key < self.tile.end, b.int32(16), b.int32(0))
            to = b.pointer(self.memory, target + row, column * PIECE)
            at = b.pointer(source, self.tile.at, self.tile.kv, inside, column * PIECE)
            b.do(b.call("mt_cp_async_16", to, at, nbytes))

        with T.unroll(b.int32(whole)) as turn:
            copy(turn)
        if rest:
            with b.when(self.thread < rest):
                copy(b.int32(whole))

    def _fragment(self, row: b.Expr, column: b.Expr, *, turned: bool = False) -> b.Buffer:
        """Four 8 x 8 matrices; ``row`` and ``column`` are those that this lane points at."""
        held = b.scratch((4,), "uint32")
        name = "mt_ldmatrix_x4_trans" if turned else "mt_ldmatrix_x4"
        b.do(b.call(name, b.pointer(held, 0), b.pointer(self.memory, row, column)))
        return held

    def _left(self, step: b.Expr) -> b.Expr:
        """The fragment of the queries for some terms."""
        if not self.form.is_wide:
            return b.pointer(self.queries, step * 4)
        row = self.waiting + self.warp_row + self.lane % 16
        column = step * STEP + self.lane // 16 * 8
        return b.pointer(self._fragment(row, column), 0)

    def _score(self) -> None:
        """Multiply the queries with the keys of the tile."""
        _clear(self.scores)
        with T.unroll(b.int32(self.form.heads.key_dim // STEP)) as step:
            left = self._left(step)
            with T.unroll(b.int32(self.form.keys // STEP)) as pair:
                row = pair * STEP + self.lane // 16 * 8 + self.lane % 8
                column = step * STEP + self.lane // 8 % 2 * 8
                right = self._fragment(row, column)
                self._multiply(self.scores, pair, left, right)

    def _multiply(self, sums: b.Buffer, pair: b.Expr, left: b.Expr, right: b.Buffer) -> None:
        """Add the products with two fragments of 8 columns to their sums."""
        for index in range(2):
            at = b.pointer(sums, 2 * pair + index, 0, 0)
            b.do(b.call(MMA[self.form.dtype], at, left, b.pointer(right, 2 * index)))

    def _hide(self, first: b.Expr, begin: b.Expr) -> None:
        """Make scores of the products, minus infinity where a key is hidden.

        The first key of the tile is ``begin``, counted from the first of the walk.
        """
        with _each(self.scores) as at:
            b.store(self.scores, self.problem.scores.of(self.scores[at]), at)

        def hide() -> None:
            for half in range(2):
                with _each_of(self.scores, half) as at:
                    key = b.let(begin + at[0] * 8 + self.lane % 4 * 2 + at[2])
                    score = self.tile.masked(self.scores[at], *self.places[half], key)
                    b.store(self.scores, self.tile.hidden(score, self.limits[half], key), at)

        if self.problem.mask is not None:
            return hide()
        with b.when(T.Not(self.tile.is_whole(first, self.form.keys, ROWS))):
            hide()
        return None

    def _take(self, half: int) -> None:
        """Turn the scores of a row into powers, and scale what it has to their maximum."""
        scores, own = self.problem.scores, b.cell()
        before = b.let(self.top[half])
        own.set(before)
        with _each_of(self.scores, half) as at:
            own.set(T.max(own.value, self.scores[at]))
        top = b.let(b.warp_reduce(own.value, T.max, 4))
        base = b.let(scores.base(top))
        shrink = b.let(scores.power(before, base))
        b.store(self.top, top, (half,))
        b.store(self.total, self.total[half] * shrink, (half,))
        with _each_of(self.scores, half) as at:
            b.store(self.scores, scores.power(self.scores[at], base), at)
            b.store(self.total, self.total[half] + self.scores[at], (half,))
        with _each_of(self.out, half) as at:
            b.store(self.out, self.out[at] * shrink, at)

    def _add(self) -> None:
        """Multiply the powers with the values of the tile."""
        with T.unroll(b.int32(self.form.keys // STEP)) as step:
            left = b.scratch((4,), "uint32")
            for register in range(4):
                at = step * 2 + register // 2, register % 2
                both = (self.scores[(*at, i)] for i in range(2))
                packed = b.call(PACK[self.form.dtype], *both, returns="uint32")
                b.store(left, packed, (register,))
            with T.unroll(b.int32(self.form.heads.value_dim // STEP)) as pair:
                row = self.values + step * STEP + self.lane % 16
                column = pair * STEP + self.lane // 16 * 8
                right = self._fragment(row, column, turned=True)
                self._multiply(self.out, pair, b.pointer(left, 0), right)

    def _finish(self, half: int) -> None:
        """Divide by the sum and write a row; zeros if it saw no key."""
        problem = self.problem
        total = b.let(b.warp_reduce(self.total[half], b.add, 4))
        inverse = b.let(problem.inverse(total, self.top[half], self.places[half][0]))
        offsets = problem.place(self.tile.at, *self.places[half])
        blocks = b.int32(self.form.heads.value_dim // 8)
        with b.when(self.rows[half] <= self.tile.last), T.unroll(blocks) as block:
            pair = ln.put([self.out[block, half, i] * inverse for i in range(2)])
            column = block * 8 + self.lane % 4 * 2
            ln.write(problem.y, pair, (*offsets, column), 2, problem.types[2])


Place: TypeAlias = tuple[b.Index, b.Index, b.Index]


@contextmanager
def _each(sums: b.Buffer) -> Iterator[Place]:
    """Emit what follows for every number of some fragments."""
    two = b.int32(2)
    with T.unroll(sums.shape[0]) as block, T.unroll(two) as half, T.unroll(two) as i:
        yield block, half, i


@contextmanager
def _each_of(sums: b.Buffer, half: int) -> Iterator[Place]:
    """Emit what follows for those of one of the two rows of a thread."""
    with T.unroll(sums.shape[0]) as block, T.unroll(b.int32(2)) as i:
        yield block, half, i


def _clear(sums: b.Buffer) -> None:
    with _each(sums) as at:
        b.store(sums, T.float32(0), at)


def _arrived(pending: int) -> None:
    """Wait until all but the last ``pending`` copies have come, those of other threads too."""
    b.do(b.call("mt_cp_async_wait", pending))
    b.barrier()
