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

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import lanes as ln
from maxtool.compiler.kernels.cuda.elements import PACK
from maxtool.compiler.kernels.cuda.flash import STATIC, Problem, Tile, tiles
from maxtool.compiler.kernels.cuda.scores import HIDDEN
from maxtool.compiler.kernels.forms import Heads

WARPS = 4
THREADS = WARPS * b.WARP
STEP = 16  # terms of a product, and rows of a warp
ROWS = WARPS * STEP
PIECE = 8  # elements of 16 bytes
WIDE = 128  # elements of a query beyond which it does not stay in registers
WIDEST = 256
MMA = {"float16": "mt_mma_f16", "bfloat16": "mt_mma_bf16"}


@dataclass(frozen=True, slots=True)
class Form:
    """How large a tile is, and where its parts wait.

    Attributes:
        heads: Widths of keys and values.
        dtype: The type of keys and values.
    """

    heads: Heads
    dtype: str

    @property
    def is_wide(self) -> bool:
        """Whether queries or results take so many registers that the others must save some."""
        return max(self.heads.key_dim, self.heads.value_dim) > WIDE

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return 32 if self.is_wide else 64

    @property
    def memory(self) -> tuple[int, int]:
        """Rows of shared memory, keys, values, then queries that wait; and elements of a row."""
        rows = 2 * self.keys + (ROWS if self.is_wide else 0)
        return rows, max(self.heads.key_dim, self.heads.value_dim) + PIECE

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory."""
        rows, pitch = self.memory
        return 2 * rows * pitch

    def fits(self, shared_memory: int) -> bool:
        """Whether tensor cores take it, and a block has room for it."""
        widths = (self.heads.key_dim, self.heads.value_dim)
        known = self.dtype in MMA and all(n % STEP == 0 and n <= WIDEST for n in widths)
        return known and self.shared_memory <= shared_memory


def flash_mma(problem: Problem, form: Form) -> None:
    """Emit attention in tiles."""
    with tiles(problem, ROWS, THREADS) as (tile, thread):
        _Block(form, tile, thread).run()


class _Block:
    """What a block holds, and what it does with it."""

    def __init__(self, form: Form, tile: Tile, thread: b.Expr) -> None:
        self.problem, self.form, self.tile, self.thread = tile.problem, form, tile, thread
        heads = form.heads
        # One buffer: TVM's pass that merges several sees no use of those that only PTX touches.
        self.memory = b.shared(form.memory, "uint16", dynamic=form.shared_memory > STATIC)
        self.values, self.waiting = form.keys, 2 * form.keys  # their first rows
        if not form.is_wide:
            self.queries = b.scratch((heads.key_dim // STEP * 4,), "uint32")
        self.lane = b.let(thread % b.WARP, 1, "int32")
        self.warp_row = b.let(thread // b.WARP * STEP, 1, "int32")
        self.scores = b.scratch((form.keys // 8 * 4,))
        self.out = b.scratch((heads.value_dim // 8 * 4,))
        self.top, self.total = b.scratch((2,)), b.scratch((2,))
        own = [tile.first + self.warp_row + self.lane // 4 + 8 * half for half in range(2)]
        self.rows = [b.index(row) for row in own]
        self.places = [tile.split(row) for row in self.rows]  # head and query

    def run(self) -> None:
        """Everything."""
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
            self._hide(first)
            for half in range(2):
                self._take(half)
            _arrived(1)
            self._add()
        for half in range(2):
            self._finish(half)

    def _start(self) -> None:
        """Load the queries; begin with nothing seen."""
        for index in range(self.form.heads.value_dim // 8 * 4):
            b.store(self.out, T.float32(0), (index,), 1)
        for half in range(2):
            b.store(self.top, T.float32(HIDDEN), (half,), 1)
            b.store(self.total, T.float32(0), (half,), 1)
        if self.form.is_wide:
            self._wait_shared()
            return
        for step in range(self.form.heads.key_dim // STEP):
            for register in range(4):
                column = step * STEP + register // 2 * 8 + self.lane % 4 * 2
                low, high = self._query(register % 2, column)
                packed = b.call(PACK[self.form.dtype], low, high, returns="uint32")
                b.store(self.queries, packed, (step * 4 + register,), 1)

    def _query(self, half: int, column: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Two neighbours of a query, in float32."""
        problem, dtype = self.problem, self.problem.types[0]
        place = problem.place(self.tile.at, *self.places[half])
        if dtype == "float32":
            pair = ln.read(problem.q, (*place, column), 2, dtype)
            return pair[0], pair[1]
        low, high = (ln.read(problem.q, (*place, column + i), 1, dtype)[0] for i in range(2))
        return low, high

    def _wait_shared(self) -> None:
        """Copy the queries into shared memory, rounded."""
        problem, dtype = self.problem, self.problem.types[0]
        units = self.form.heads.key_dim // 4
        with T.serial(b.integer(ROWS * units // THREADS)) as step:
            index = b.index(step * THREADS + self.thread)
            row, column = b.index(b.quotient(index, units)), b.index(b.remainder(index, units) * 4)
            place = problem.place(self.tile.at, *self.tile.split(self.tile.first + row))
            numbers = ln.read(problem.q, (*place, column), 4, dtype)
            ln.write(self.memory, numbers, (self.waiting + row, column), 4, self.form.dtype)

    def _copy(self, target: int, width: int, source: b.Buffer, first: b.Expr) -> None:
        """Begin to copy a tile; what no row sees becomes 0, whatever it is."""
        pieces = width // PIECE
        total = self.form.keys * pieces
        for begin in range(0, total, THREADS):
            index = self.thread + begin
            if THREADS % pieces == 0:  # each thread stays in its column
                row, column = self.thread // pieces + begin // pieces, self.thread % pieces
            else:
                row, column = index // pieces, index % pieces
            self._copy_piece(target, source, first, (row, column), total - begin)

    def _copy_piece(
        self,
        target: int,
        source: b.Buffer,
        first: b.Expr,
        place: tuple[b.Expr, b.Expr],
        left: int,
    ) -> None:
        row, column = place
        key = b.index(first + row)
        inside = b.index(b.least(key, self.problem.keys - 1))
        nbytes = T.Select(key < self.tile.end, b.int32(16), b.int32(0))
        to = b.pointer(self.memory, target + row, column * PIECE)
        at = b.pointer(source, self.tile.at, self.tile.kv, inside, column * PIECE)

        def copy() -> None:
            b.do(b.call("mt_cp_async_16", to, at, nbytes))

        if left >= THREADS:
            return copy()
        with b.when(self.thread < left):
            copy()
        return None

    def _fragment(self, row: b.Expr, column: b.Expr, *, turned: bool = False) -> b.Buffer:
        """Four 8 x 8 matrices; ``row`` and ``column`` are those that this lane points at."""
        held = b.scratch((4,), "uint32")
        name = "mt_ldmatrix_x4_trans" if turned else "mt_ldmatrix_x4"
        b.do(b.call(name, b.pointer(held, 0), b.pointer(self.memory, row, column)))
        return held

    def _left(self, step: int) -> b.Expr:
        """The fragment of the queries for some terms."""
        if not self.form.is_wide:
            return b.pointer(self.queries, step * 4)
        row = self.waiting + self.warp_row + self.lane % 16
        column = step * STEP + self.lane // 16 * 8
        return b.pointer(self._fragment(row, column), 0)

    def _score(self) -> None:
        """Multiply the queries with the keys of the tile."""
        for index in range(self.form.keys // 8 * 4):
            b.store(self.scores, T.float32(0), (index,), 1)
        for step in range(self.form.heads.key_dim // STEP):
            left = self._left(step)
            for pair in range(self.form.keys // STEP):
                row = pair * STEP + self.lane // 16 * 8 + self.lane % 8
                column = step * STEP + self.lane // 8 % 2 * 8
                right = self._fragment(row, column)
                self._multiply(self.scores, pair, left, right)

    def _multiply(self, sums: b.Buffer, pair: int, left: b.Expr, right: b.Buffer) -> None:
        """Add the products with two fragments of 8 columns to their sums."""
        for index in range(2):
            at = b.pointer(sums, (2 * pair + index) * 4)
            b.do(b.call(MMA[self.form.dtype], at, left, b.pointer(right, 2 * index)))

    def _hide(self, first: b.Expr) -> None:
        """Make scores of the products, minus infinity where a key is hidden."""
        count = self.form.keys // 8 * 4
        for index in range(count):
            b.store(self.scores, self.problem.scores.of(self.scores[index]), (index,), 1)

        def hide() -> None:
            for index in range(count):
                head, query = self.places[index % 4 // 2]
                key = b.index(first + index // 4 * 8 + self.lane % 4 * 2 + index % 2)
                score = self.tile.hidden(self.scores[index], head, query, key)
                b.store(self.scores, score, (index,), 1)

        if self.problem.mask is not None:
            return hide()
        with b.when(T.Not(self.tile.is_whole(first, self.form.keys, ROWS))):
            hide()
        return None

    def _own(self, half: int) -> list[int]:
        """The scores of one of the two rows of a thread."""
        return [at for at in range(self.form.keys // 8 * 4) if at % 4 // 2 == half]

    def _take(self, half: int) -> None:
        """Turn the scores of a row into powers, and scale what it has to their maximum."""
        scores, mine = self.problem.scores, self._own(half)
        own = b.let(self.top[half])
        for at in mine:
            own = b.let(T.max(own, self.scores[at]))
        top = b.let(b.warp_reduce(own, T.max, 4))
        base = b.let(scores.base(top))
        shrink = b.let(scores.power(self.top[half], base))
        b.store(self.top, top, (half,), 1)
        b.store(self.total, self.total[half] * shrink, (half,), 1)
        for at in mine:
            b.store(self.scores, scores.power(self.scores[at], base), (at,), 1)
            b.store(self.total, self.total[half] + self.scores[at], (half,), 1)
        for at in range(self.form.heads.value_dim // 8 * 4):
            if at % 4 // 2 == half:
                b.store(self.out, self.out[at] * shrink, (at,), 1)

    def _add(self) -> None:
        """Multiply the powers with the values of the tile."""
        for step in range(self.form.keys // STEP):
            left = b.scratch((4,), "uint32")
            for register in range(4):
                at = step * 8 + register * 2
                both = self.scores[at], self.scores[at + 1]
                packed = b.call(PACK[self.form.dtype], *both, returns="uint32")
                b.store(left, packed, (register,), 1)
            for pair in range(self.form.heads.value_dim // STEP):
                row = self.values + step * STEP + self.lane % 16
                column = pair * STEP + self.lane // 16 * 8
                right = self._fragment(row, column, turned=True)
                self._multiply(self.out, pair, b.pointer(left, 0), right)

    def _finish(self, half: int) -> None:
        """Divide by the sum and write a row; zeros if it saw no key."""
        problem = self.problem
        total = b.let(b.warp_reduce(self.total[half], b.add, 4))
        zero, one = T.float32(0), T.float32(1)
        inverse = b.let(one / T.Select(total == zero, one, total))
        place = problem.place(self.tile.at, *self.places[half])
        with b.when(self.rows[half] < self.tile.rows):
            for block in range(self.form.heads.value_dim // 8):
                pair = b.scratch((2,))
                for i in range(2):
                    b.store(pair, self.out[block * 4 + 2 * half + i] * inverse, (i,), 1)
                column = block * 8 + self.lane % 4 * 2
                ln.write(problem.y, pair, (*place, column), 2, problem.types[2])


def _arrived(pending: int) -> None:
    """Wait until all but the last ``pending`` copies have come, those of other threads too."""
    b.do(b.call("mt_cp_async_wait", pending))
    b.barrier()
