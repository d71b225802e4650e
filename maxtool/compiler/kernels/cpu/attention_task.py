"""One task of the attention kernel: a tile of rows against a block of keys."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.cached_rows import CachedRows
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet
from maxtool.compiler.kernels.cpu.key_block import KEYS, TILE_ROWS, FloatKeys, KeyBlock, vectors
from maxtool.compiler.kernels.cpu.quantized_keys import QuantizedKeys
from maxtool.compiler.kernels.cpu.special_functions import Vectors

TASKS = 16  # tasks that a single query should give

# Takes the place of minus infinity, so that no difference of two of them is NaN.
HIDDEN = -1e30


@dataclass(frozen=True, slots=True)
class Seen:
    """The keys that a query sees: before its own all, a window or its chunk, and those behind."""

    window: int | None
    chunked: bool = False
    causal: bool = True  # whether it sees none of the keys behind its own

    def reach(self, position: b.Expr) -> b.Expr | None:
        """The most keys that a query at a position sees before its own; None for all."""
        if self.window is None:
            return None
        if self.chunked:
            return b.remainder(position, self.window)
        return b.integer(self.window - 1)


@dataclass(frozen=True, slots=True)
class Options:
    """The options that an attention kernel is built for."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    seen: Seen
    softcap: float | None
    dtype: str  # of keys and values, which are converted in registers
    tile: RegisterTile
    integers: InstructionSet | None = None  # for keys and values in blocks of Q8_0
    sinks: bool = False  # whether each head has the score of one more key

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def parts(self) -> int:
        """Parts that the keys of a single query are cut into, to give every thread some."""
        return max(1, TASKS // self.kv_heads)

    @property
    def vectors(self) -> int:
        """Vectors in a row of a register tile."""
        return vectors(self.tile)


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """The sizes and buffers of one attention kernel while it is built."""

    options: Options
    batch: b.Expr
    seq: b.Expr
    context: b.Expr
    q: b.Buffer
    k: CachedRows
    v: CachedRows
    position: b.Buffer
    slot: b.Buffer | None  # of each row; None where row ``i`` has the ``i``-th keys and values
    sink: b.Buffer | None  # of each head
    y: b.Buffer

    def cache_of(self, at: b.Expr) -> b.Expr:
        """Index of the keys and values of a row."""
        if self.slot is None:
            return at
        return b.index(b.clamped(T.Cast("int64", self.slot[at]), self.k.rows.shape[0]))

    def key_block(self) -> KeyBlock:
        """Memory for a block of keys."""
        options = self.options
        if options.integers is None:
            return FloatKeys.allocated(self.k, options.tile, options.head_dim)
        return QuantizedKeys.allocated(self.k, options.tile, options.integers, options.head_dim)

    def position_of(self, at: b.Expr) -> b.Expr:
        """Position of the first query of a row."""
        return b.index(T.Cast("int64", self.position[0 if self.slot is None else at]))


@dataclass(frozen=True, slots=True)
class AttentionTask:
    """Work of one task: its range of keys, and its accumulators."""

    kernel: AttentionKernel
    at: b.Expr  # index in the batch
    cache: b.Expr  # index of the keys and values
    position: b.Expr  # of the first query of the row
    head: b.Expr  # key head
    first: b.Expr  # first row of the tile; row r is query r // group of head r % group
    rows: b.Expr  # rows of the tile that exist
    queries: b.Buffer  # [ROWS, head_dim], scaled
    keys: KeyBlock  # the current block
    scores: b.Buffer  # [ROWS, KEYS], then their exponentials
    top: b.Buffer  # [ROWS] running maximum
    total: b.Buffer  # [ROWS] running sum of exponentials
    out: b.Buffer  # [ROWS, head_dim] running weighted values

    @property
    def options(self) -> Options:
        """The options of the kernel."""
        return self.kernel.options

    @property
    def groups(self) -> b.Expr:
        """Register tiles of rows."""
        return b.ceildiv(self.rows, TILE_ROWS)

    def place_of(self, row: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Query and head of a row."""
        query = b.index(b.quotient(row, self.options.group))
        return query, b.index(self.head * self.options.group + b.remainder(row, self.options.group))

    def softmax_row(self, r: b.Expr, base: b.Expr) -> None:
        """Hide what a row may not see, then update its maximum, its sum and its values' scale."""
        width = self.options.tile.width
        own = b.index(self.own_key(self.first + r))
        last = b.let(T.Cast("int32", self.last_key(self.first + r) - base))
        seen = last, self._first_seen(own, base)
        pieces = b.widths(KEYS, width)
        scores = [self._visible(r, seen, offset) for offset, _ in pieces]
        highest = scores[0]
        for score in scores[1:]:
            highest = T.max(highest, score)
        old = b.let(self.top[r])
        top = b.let(T.max(old, b.fold(highest, width, T.max)))
        total = b.splat(0.0, width)
        for (offset, _), score in zip(pieces, scores, strict=True):
            value = b.let(b.exp(score - b.splat(top, width), width))
            b.store(self.scores, value, (r, offset), width)
            total = total + value
        shrink = b.let(b.exp(old - top, 1))
        b.store(self.top, top, (r,))
        b.store(self.total, self.total[r] * shrink + b.fold(total, width, b.add), (r,))
        for offset, part in b.widths(self.options.head_dim, width):
            value = b.load(self.out, (r, offset), part) * b.splat(shrink, part)
            b.store(self.out, value, (r, offset), part)

    def own_key(self, row: b.Expr) -> b.Expr:
        """The key of a row's own query."""
        return self.position + b.quotient(row, self.options.group)

    def last_key(self, row: b.Expr) -> b.Expr:
        """The last key that a row sees."""
        causal = self.options.seen.causal
        return self.own_key(row) if causal else self.position + self.kernel.seq - 1

    def _visible(self, r: b.Expr, seen: tuple[b.Expr, b.Expr | None], offset: int) -> b.Expr:
        """A vector of scores, hidden but for what a row sees: to the last key from the first on."""
        width = self.options.tile.width
        score = self._capped(b.load(self.scores, (r, offset), width))
        index = T.ramp(b.int32(offset), b.int32(1), width)
        hidden = b.splat(HIDDEN, width)
        last, first = seen
        score = T.Select(index <= b.splat(last, width), score, hidden)
        if first is not None:
            score = T.Select(index >= b.splat(T.Cast("int32", first), width), score, hidden)
        return b.let(score)

    def _capped(self, score: b.Expr) -> b.Expr:
        """A vector of scores within the soft cap, if there is one."""
        if self.options.softcap is None:
            return score
        width = self.options.tile.width
        cap = b.splat(self.options.softcap, width)
        return Vectors(width).tanh(b.let(score / cap)) * cap

    def add_values(self, row: b.Expr, base: b.Expr, count: b.Expr) -> None:
        """Add the block's values, weighted, to a register tile of rows."""
        pieces = b.widths(self.options.head_dim, self.options.tile.width)
        for first in range(0, len(pieces), self.options.vectors):
            self._value_columns(row, base, count, pieces[first : first + self.options.vectors])

    def _value_columns(
        self, row: b.Expr, base: b.Expr, count: b.Expr, pieces: list[tuple[int, int]]
    ) -> None:
        left = pieces[0][0]
        sums = b.Registers(TILE_ROWS, pieces[-1][0] + pieces[-1][1] - left, self.options.tile.width)
        places = [(r, offset - left, width) for r in range(TILE_ROWS) for offset, width in pieces]
        for r, offset, width in places:
            sums.set(r, offset, width, b.load(self.out, (row + r, left + offset), width))
        common = self._seen_by_all(row, base, count)
        if self.options.seen.window is not None:
            self._weigh(sums, row, base, pieces, (b.integer(0), common[0]), hides=True)
        self._weigh(sums, row, base, pieces, common, hides=False)
        self._weigh(sums, row, base, pieces, (common[1], count), hides=True)
        for r, offset, width in places:
            b.store(self.out, sums.get(r, offset, width), (row + r, left + offset), width)

    def _seen_by_all(self, row: b.Expr, base: b.Expr, count: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Keys of the block that every row of a register tile sees: the first, and the end."""
        rows = self.first + row, self.first + row + (TILE_ROWS - 1)
        end = b.index(b.greatest(b.least(self.last_key(rows[0]) - base + 1, count), 0))
        begin = self._first_seen(b.index(self.own_key(rows[1])), base)
        if begin is None:
            return b.integer(0), end
        begin = b.greatest(begin, 0)
        return b.index(b.least(begin, end)), end

    def _first_seen(self, own: b.Expr, base: b.Expr) -> b.Expr | None:
        """The first key of the block on that the query of a key sees; None for the first of all."""
        reach = self.options.seen.reach(own)
        return None if reach is None else own - reach - base

    def _sees(self, row: b.Expr, base: b.Expr, i: b.Expr) -> b.Expr:
        """Return whether a row sees a key of the block."""
        last = b.index(self.last_key(self.first + row) - base)
        first = self._first_seen(b.index(self.own_key(self.first + row)), base)
        return i <= last if first is None else tirx.all(i <= last, i >= first)

    def _weigh(
        self,
        sums: b.Registers,
        row: b.Expr,
        base: b.Expr,
        pieces: list[tuple[int, int]],
        keys: tuple[b.Expr, b.Expr],
        *,
        hides: bool,
    ) -> None:
        """Add the values of some keys; ``hides`` is whether there are rows that do not see them.

        Those as far in the next block are fetched into the cache meanwhile.

        To such a row a value is not added, as 0 times NaN or infinity were NaN.
        """
        with T.serial(b.greatest(keys[1] - keys[0], 0)) as step:
            i = b.index(keys[0] + step)
            source = self.cache, self.head, b.index(base + i)
            following = self.cache, self.head, b.index(base + KEYS + i), pieces[0][0]
            self.kernel.v.prefetch(following, sum(width for _, width in pieces))
            values = [b.let(self.kernel.v.vector((*source, at), n)) for at, n in pieces]
            for r in range(TILE_ROWS):
                weight = b.let(self.scores[row + r, i])
                seen = b.let(self._sees(row + r, base, i)) if hides else None
                for (offset, width), value in zip(pieces, values, strict=True):
                    part = b.splat(weight, width) * value
                    if seen is not None:
                        part = T.Select(b.splat(seen, width), part, b.splat(0.0, width))
                    sums.add(r, offset - pieces[0][0], width, part)
