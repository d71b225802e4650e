"""Common parts of attention kernels that walk tiles of keys.

A block has a tile of rows; a row is one query of one head, and all heads of a group are rows of the
same tile: they share its keys. The walk goes over those keys only that some row of the tile sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.attention_scores import Scores
from maxtool.compiler.kernels.kernel_options import HeadSizes

STATIC = 48 << 10  # bytes of shared memory that need not be asked for

# From batch, head, query and key to what is done to the score.
Masking: TypeAlias = Callable[[b.Expr, b.Expr, b.Expr, b.Expr, b.Expr], b.Expr]


@dataclass(frozen=True, slots=True)
class AttentionOperands:
    """Queries, keys and values, and which of them belong together."""

    heads: HeadSizes  # the sizes
    batch: b.Expr  # how many sequences
    queries: b.Expr  # queries of each head
    keys: b.Expr  # keys that there are, seen or not
    q: b.Buffer  # [batch, queries, heads, key_dim], or with the heads before the queries
    k: b.Buffer  # [batch, kv_heads, keys, key_dim]
    v: b.Buffer  # [batch, kv_heads, keys, value_dim]
    y: b.Buffer  # like ``q``, with ``value_dim``
    types: tuple[str, str, str]  # the types of ``q``, of ``k`` and ``v``, and of ``y``
    heads_first: bool  # whether heads are before queries in ``q`` and ``y``
    offset: b.Expr | None  # query i sees the keys up to ``i + offset``; None if it sees all
    scores: Scores  # what becomes of products
    mask: Masking | None = None  # what is done to a score then
    sinks: b.Buffer | None = None  # [heads]: the score of one more key of each, whose value is 0

    @property
    def group(self) -> int:
        """Heads of queries that share a head of keys."""
        return self.heads.queries // self.heads.keys

    def inverse(self, total: b.Expr, top: b.Expr, head: b.Expr) -> b.Expr:
        """The inverse of the sum of a row's powers, which are relative to its greatest score."""
        if self.sinks is not None:
            total = b.let(self.scores.with_sink(total, top, self.sinks[head]))
        return self.scores.inverse(total)

    def place(self, at: b.Expr, head: b.Expr, query: b.Expr) -> tuple[b.Expr, ...]:
        """Return the offsets of a query's head in ``q`` and in ``y``."""
        return (at, head, query) if self.heads_first else (at, query, head)


@dataclass(frozen=True, slots=True)
class QueryTile:
    """The rows of one block."""

    problem: AttentionOperands  # what they are rows of
    at: b.Expr  # the sequence
    kv: b.Expr  # the head of keys
    first: b.Expr  # the first row
    query: b.Expr  # its query
    member: b.Expr  # which head of its group it is, int32
    # The last row that there is, counted from the first, int32; it may lie in a later tile.
    last: b.Expr
    begin: b.Expr  # the first key that some row sees
    end: b.Expr  # the key after the last that some row sees

    @property
    def rows(self) -> b.Expr:
        """Rows there are in all tiles of the head of keys."""
        return self.problem.queries * self.problem.group

    def split(self, row: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Head and query of a row of the tile, an int32; rows that there are not repeat the last.

        Divisions are of int32, which are some instructions only.
        """
        group = b.int32(self.problem.group)
        position = b.let(self.member + T.min(row, self.last))
        query = b.let(T.truncdiv(position, group))
        member = T.Cast("int64", position - query * group)
        head = b.index(self.kv * self.problem.group + member)
        return head, b.index(self.query + T.Cast("int64", query))

    def limits(self, query: b.Expr) -> KeyRange:
        """Return the range of keys a query sees, not counting the mask."""
        problem, high = self.problem, self.end - 1
        if problem.offset is None:
            return KeyRange(_short(high - self.begin))
        own = b.index(query + problem.offset)
        last = b.index(problem.scores.last(query, problem.queries) + problem.offset)
        high = _short(b.least(high, last) - self.begin)
        reach = problem.scores.reach(own)
        return KeyRange(high, None if reach is None else _short(own - reach - self.begin))

    def is_whole(self, first: b.Expr, count: int, rows: int) -> b.Expr:
        """Return whether every row of the tile sees all of ``count`` keys from ``first`` on."""
        problem = self.problem
        after = first + count
        whole = after <= self.end
        if problem.offset is None:
            return whole
        lowest = problem.scores.last(self.query, problem.queries) + problem.offset
        whole = T.And(whole, after <= lowest + 1)
        last = b.least(self.first + rows, self.rows) - 1
        highest = b.index(b.quotient(last, problem.group) + problem.offset)
        reach = problem.scores.reach(highest)
        return whole if reach is None else T.And(whole, first >= highest - reach)

    def hidden(self, score: b.Expr, limits: KeyRange, key: b.Expr) -> b.Expr:
        """A score, or minus infinity where the key, an int32 from ``begin`` on, is not seen."""
        return T.Select(limits.has(key), score, self.problem.scores.number(float("-inf")))

    def masked(self, score: b.Expr, head: b.Expr, query: b.Expr, key: b.Expr) -> b.Expr:
        """Apply the mask to a score; a key beyond the last gets the score of a hidden one."""
        mask = self.problem.mask
        if mask is None:
            return score
        inside = b.index(b.least(self.begin + T.Cast("int64", key), self.problem.keys - 1))
        return b.let(mask(score, self.at, head, query, inside))


class KeyRange(NamedTuple):
    """The keys that a query sees, counted from the first of its tile; int32."""

    high: b.Expr  # the last; -1 or less if there is none
    low: b.Expr | None = None  # the first; None for that of the tile

    def has(self, key: b.Expr) -> b.Expr:
        """Return whether a key is one of them."""
        below = key <= self.high
        return below if self.low is None else T.And(below, key >= self.low)


def _short(key: b.Expr) -> b.Expr:
    """A count of keys, which an int32 holds: of more there is no memory."""
    return b.let(T.Cast("int32", key))


@contextmanager
def tiles(
    problem: AttentionOperands, rows: int, threads: int, min_blocks_per_sm: int
) -> Iterator[tuple[QueryTile, b.Expr]]:
    """Launch a block for each tile of ``rows`` rows: yields the tile and the thread's index.

    Of the tiles of a head those with most keys come first, lest they be the last to end.
    """
    heads, group, offset = problem.heads, problem.group, problem.offset
    count = b.ceildiv(problem.queries * group, rows)
    blocks = [problem.batch * heads.keys * count]
    with b.launch(blocks, threads, min_blocks_per_sm=min_blocks_per_sm) as (block, thread):
        pair = b.index(b.quotient(block, count))
        first = b.index((count - 1 - (block - pair * count)) * rows)
        at = b.index(b.quotient(pair, heads.keys))
        kv = b.index(pair - at * heads.keys)
        if offset is not None:
            problem = replace(problem, offset=b.index(offset))
        query = b.index(b.quotient(first, group))
        member = b.let(T.Cast("int32", first - query * group))
        left = b.least(problem.queries * group - 1 - first, rows)
        last = b.let(T.Cast("int32", left))
        begin, end = _range(problem, first, rows)
        yield QueryTile(problem, at, kv, first, query, member, last, begin, end), thread


def _range(problem: AttentionOperands, first: b.Expr, rows: int) -> tuple[b.Expr, b.Expr]:
    """The keys that some row of a tile sees, from the first to the one after the last."""
    if problem.offset is None:
        return b.integer(0), b.index(problem.keys)
    last = b.least(first + rows, problem.queries * problem.group) - 1
    highest = problem.scores.last(b.quotient(last, problem.group), problem.queries) + problem.offset
    end = b.index(b.greatest(b.least(highest + 1, problem.keys), 0))
    lowest = b.quotient(first, problem.group) + problem.offset
    return b.index(problem.scores.first(lowest)), end
