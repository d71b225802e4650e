"""Causal attention over a cache, or over the sequence itself, with grouped heads and windows.

A task is a tile of rows that share a key head; a row is one query of one head. Keys come in blocks:
scores of a block, their running maximum and sum (the online softmax), then the block's values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import special
from maxtool.compiler.target import Tile

KEYS = 64  # keys in a block: a multiple of every vector length
ROWS = 16  # rows in a task
TILE_ROWS = 4  # rows of a register tile
TASKS = 16  # tasks that a single query should give

# Takes the place of minus infinity, so that no difference of two of them is NaN.
HIDDEN = -1e30


@dataclass(frozen=True, slots=True)
class Attention:
    """The sizes and buffers of one attention kernel while it is built."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None
    softcap: float | None
    tile: Tile
    batch: b.Expr
    seq: b.Expr
    context: b.Expr
    q: b.Buffer
    k: b.Buffer
    v: b.Buffer
    position: b.Expr
    y: b.Buffer

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
        return 4 if self.tile.registers >= 32 else 2


@dataclass(frozen=True, slots=True)
class Task:
    """Where one task reads, and what it keeps.

    Args:
        at: Index in the batch.
        head: Key head.
        first: First row of the tile; row r is query r // group of head r % group.
        rows: Rows of the tile that exist.
        queries: [ROWS, head_dim], scaled.
        keys: [head_dim, KEYS] of the current block.
        scores: [ROWS, KEYS], then their exponentials.
        top: [ROWS] running maximum.
        total: [ROWS] running sum of exponentials.
        out: [ROWS, head_dim] running weighted values.
    """

    at: b.Expr
    head: b.Expr
    first: b.Expr
    rows: b.Expr
    queries: b.Buffer
    keys: b.Buffer
    scores: b.Buffer
    top: b.Buffer
    total: b.Buffer
    out: b.Buffer

    @property
    def groups(self) -> b.Expr:
        """Register tiles of rows."""
        return b.ceildiv(self.rows, TILE_ROWS)


@dataclass(frozen=True, slots=True)
class Parts:
    """Results of parts of one query's keys: [task * count + part, row, ...].

    Args:
        count: Parts of each task.
        top: Maxima.
        total: Sums of exponentials.
        out: Weighted values.
    """

    count: b.Expr
    top: b.Buffer
    total: b.Buffer
    out: b.Buffer


def attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    tile: Tile,
    window: int | None = None,
    softcap: float | None = None,
) -> Any:  # noqa: ANN401
    """Build causal attention.

    Parameters of the kernel: q[batch, seq, heads, head_dim], k[batch, kv_heads, head_dim, context],
    v[batch, kv_heads, context, head_dim], position[1] int32, y like q. Query i sees the keys 0 to
    position + i, and with a window only the last ``window`` of them; its own position included.

    Args:
        heads: Query heads, a multiple of ``kv_heads``.
        kv_heads: Key and value heads.
        head_dim: Elements of a head.
        scale: Factor of the scores, usually ``head_dim ** -0.5``.
        tile: The target's registers.
        window: Keys a query sees at most.
        softcap: Bound of the scores, which become ``softcap * tanh(score / softcap)``.
    """
    with b.kernel(f"attention_{heads}_{kv_heads}_{head_dim}") as made:
        batch, seq, context = made.dim("batch"), made.dim("seq"), made.dim("context")
        q = made.argument("q", (batch, seq, heads, head_dim))
        k = made.argument("k", (batch, kv_heads, head_dim, context))
        v = made.argument("v", (batch, kv_heads, context, head_dim))
        position = made.argument("position", (1,), "int32")
        y = made.argument("y", (batch, seq, heads, head_dim))
        start = T.Bind(T.Cast("int64", position[0]))
        sizes, runtime = (heads, kv_heads, head_dim), (batch, seq, context)
        one = Attention(*sizes, scale, window, softcap, tile, *runtime, q, k, v, start, y)
        _emit(one)
    return made.function


def _emit(one: Attention) -> None:
    """All tasks on all threads; one query's keys are shared out too, and the parts then joined."""
    tiles = T.Bind(b.ceildiv(one.seq * one.group, ROWS))
    parts = T.Bind(T.Select(one.seq == 1, b.integer(one.parts), b.integer(1)))
    tasks = T.Bind(one.batch * one.kv_heads * tiles)
    space = T.Bind(T.Select(parts == 1, b.integer(1), tasks * parts))
    shared = Parts(
        parts,
        top=b.workspace((space, ROWS)),
        total=b.workspace((space, ROWS)),
        out=b.workspace((space, ROWS, one.head_dim)),
    )
    with T.parallel(tasks * parts) as index:
        task = _start(one, b.index(b.quotient(index, parts)), tiles)
        _run(one, task, parts, b.remainder(index, parts))
        b.either(
            parts == 1,
            lambda: _finish(one, task),
            lambda: _hand_over(one, task, shared, index),
        )
    with b.when(parts > 1), T.serial(tasks) as index:
        task = _start(one, index, tiles)
        _join(one, task, shared, index)
        _finish(one, task)


def _start(one: Attention, index: b.Expr, tiles: b.Expr) -> Task:
    """Take the memory of a task; load and scale its queries."""
    pair = b.index(b.quotient(index, tiles))
    first = b.index(b.remainder(index, tiles) * ROWS)
    task = Task(
        at=b.index(b.quotient(pair, one.kv_heads)),
        head=b.index(b.remainder(pair, one.kv_heads)),
        first=first,
        rows=b.index(b.least(one.seq * one.group - first, ROWS)),
        queries=b.scratch((ROWS, one.head_dim)),
        keys=b.scratch((one.head_dim, KEYS)),
        scores=b.scratch((ROWS, KEYS)),
        top=b.scratch((ROWS,)),
        total=b.scratch((ROWS,)),
        out=b.scratch((ROWS, one.head_dim)),
    )
    with T.serial(task.groups * TILE_ROWS) as r:
        b.store(task.top, T.float32(HIDDEN), (r,), 1)
        b.store(task.total, T.float32(0), (r,), 1)
        query, head = _place(one, task, b.index(b.least(task.first + r, one.seq * one.group - 1)))
        for offset, lanes in b.widths(one.head_dim, one.tile.lanes):
            value = b.load(one.q, (task.at, query, head, offset), lanes)
            b.store(task.queries, value * b.splat(one.scale, lanes), (r, offset), lanes)
            b.store(task.out, b.splat(0.0, lanes), (r, offset), lanes)
    return task


def _place(one: Attention, task: Task, row: b.Expr) -> tuple[b.Expr, b.Expr]:
    """Query and head of a row."""
    query = b.index(b.quotient(row, one.group))
    return query, b.index(task.head * one.group + b.remainder(row, one.group))


def _run(one: Attention, task: Task, parts: b.Expr, part: b.Expr) -> None:
    """Walk this part's share of the blocks of keys that any row of the tile sees."""
    last = b.quotient(task.first + task.rows - 1, one.group)
    end = b.index(b.least(one.position + last + 1, one.context))
    begin = b.integer(0)
    if one.window is not None:
        lowest = one.position + b.quotient(task.first, one.group) - (one.window - 1)
        begin = b.index(b.greatest(lowest, 0))
    blocks = b.index(b.ceildiv(b.greatest(end - begin, 0), KEYS))
    share = b.index(b.quotient(blocks + parts - 1, parts))
    start = b.index(part * share)
    with T.serial(b.greatest(b.least(blocks - start, share), 0)) as block:
        base = b.index(begin + (start + block) * KEYS)
        count = b.index(b.least(end - base, KEYS))
        _copy_keys(one, task, base, count)
        with T.serial(task.groups) as group:
            _scores(one, task, b.index(group * TILE_ROWS))
        with T.serial(task.rows) as r:
            _softmax(one, task, r, base)
        with T.serial(task.groups) as group:
            _values(one, task, b.index(group * TILE_ROWS), base, count)


def _copy_keys(one: Attention, task: Task, base: b.Expr, count: b.Expr) -> None:
    """Bring a block of keys together; beyond the context there is nothing to read, so zeros."""

    def whole() -> None:
        with T.serial(b.integer(one.head_dim)) as d:
            for offset, lanes in b.widths(KEYS, one.tile.lanes):
                value = b.load(one.k, (task.at, task.head, d, base + offset), lanes)
                b.store(task.keys, value, (d, offset), lanes)

    def part() -> None:
        with T.serial(b.integer(one.head_dim)) as d:
            for offset, lanes in b.widths(KEYS, one.tile.lanes):
                b.store(task.keys, b.splat(0.0, lanes), (d, offset), lanes)
            with T.serial(count) as i:
                b.store(task.keys, one.k[task.at, task.head, d, base + i], (d, i), 1)

    b.either(base + KEYS <= one.context, whole, part)


def _scores(one: Attention, task: Task, row: b.Expr) -> None:
    """Scores of a register tile of rows with every key of the block."""
    columns = one.vectors * one.tile.lanes
    with T.serial(b.integer(KEYS // columns)) as part:
        start = b.index(part * columns)
        sums = b.Registers(TILE_ROWS, columns, one.tile.lanes)
        sums.clear()
        with T.serial(b.integer(one.head_dim)) as d:
            keys = [b.let(b.load(task.keys, (d, start + at), n), n) for at, n in sums.pieces]
            for r in range(TILE_ROWS):
                query = b.let(b.splat(task.queries[row + r, d], one.tile.lanes), one.tile.lanes)
                for (offset, lanes), key in zip(sums.pieces, keys, strict=True):
                    sums.add(r, offset, lanes, query * key)
        for r, offset, lanes in sums.places:
            b.store(task.scores, sums.get(r, offset, lanes), (row + r, start + offset), lanes)


def _softmax(one: Attention, task: Task, r: b.Expr, base: b.Expr) -> None:
    """Hide what a row may not see, then update its maximum, its sum and its values' scale."""
    lanes = one.tile.lanes
    query = b.index(b.quotient(task.first + r, one.group))
    seen = b.index(T.Cast("int32", one.position + query - base))
    pieces = b.widths(KEYS, lanes)
    scores = [_visible(one, task, r, seen, offset) for offset, _ in pieces]
    highest = scores[0]
    for score in scores[1:]:
        highest = T.max(highest, score)
    old = b.let(task.top[r])
    top = b.let(T.max(old, b.fold(highest, lanes, T.max)))
    total = b.splat(0.0, lanes)
    for (offset, _), score in zip(pieces, scores, strict=True):
        value = b.let(b.exp(score - b.splat(top, lanes), lanes), lanes)
        b.store(task.scores, value, (r, offset), lanes)
        total = total + value
    shrink = b.let(b.exp(old - top, 1))
    b.store(task.top, top, (r,), 1)
    b.store(task.total, task.total[r] * shrink + b.fold(total, lanes, b.add), (r,), 1)
    for offset, width in b.widths(one.head_dim, lanes):
        value = b.load(task.out, (r, offset), width) * b.splat(shrink, width)
        b.store(task.out, value, (r, offset), width)


def _visible(one: Attention, task: Task, r: b.Expr, seen: b.Expr, offset: int) -> b.Expr:
    """A vector of scores, hidden outside the row's range; ``seen`` is the last key's index."""
    lanes = one.tile.lanes
    score = _capped(one, b.load(task.scores, (r, offset), lanes))
    index = T.ramp(b.int32(offset), b.int32(1), lanes)
    hidden = b.splat(HIDDEN, lanes)
    score = T.Select(index <= b.splat(seen, lanes), score, hidden)
    if one.window is not None:
        score = T.Select(index > b.splat(seen - one.window, lanes), score, hidden)
    return b.let(score, lanes)


def _capped(one: Attention, score: b.Expr) -> b.Expr:
    """A vector of scores within the soft cap, if there is one."""
    if one.softcap is None:
        return score
    lanes = one.tile.lanes
    cap = b.splat(one.softcap, lanes)
    return special.tanh(lanes, b.let(score / cap, lanes)) * cap


def _values(one: Attention, task: Task, row: b.Expr, base: b.Expr, count: b.Expr) -> None:
    """Add the block's values, weighted, to a register tile of rows."""
    pieces = b.widths(one.head_dim, one.tile.lanes)
    for first in range(0, len(pieces), one.vectors):
        chosen = pieces[first : first + one.vectors]
        _value_columns(one, task, row, base, count, chosen)


def _value_columns(
    one: Attention,
    task: Task,
    row: b.Expr,
    base: b.Expr,
    count: b.Expr,
    pieces: list[tuple[int, int]],
) -> None:
    left = pieces[0][0]
    sums = b.Registers(TILE_ROWS, pieces[-1][0] + pieces[-1][1] - left, one.tile.lanes)
    places = [(r, offset - left, lanes) for r in range(TILE_ROWS) for offset, lanes in pieces]
    for r, offset, lanes in places:
        sums.set(r, offset, lanes, b.load(task.out, (row + r, left + offset), lanes))
    with T.serial(count) as i:
        key = b.index(base + i)
        values = [b.let(b.load(one.v, (task.at, task.head, key, at), n), n) for at, n in pieces]
        for r in range(TILE_ROWS):
            weight = b.let(task.scores[row + r, i])
            for (offset, lanes), value in zip(pieces, values, strict=True):
                sums.add(r, offset - left, lanes, b.splat(weight, lanes) * value)
    for r, offset, lanes in places:
        b.store(task.out, sums.get(r, offset, lanes), (row + r, left + offset), lanes)


def _hand_over(one: Attention, task: Task, shared: Parts, index: b.Expr) -> None:
    """Leave a part's results for whoever joins them."""
    with T.serial(task.rows) as r:
        b.store(shared.top, task.top[r], (index, r), 1)
        b.store(shared.total, task.total[r], (index, r), 1)
        for offset, lanes in b.widths(one.head_dim, one.tile.lanes):
            value = b.load(task.out, (r, offset), lanes)
            b.store(shared.out, value, (index, r, offset), lanes)


def _join(one: Attention, task: Task, shared: Parts, index: b.Expr) -> None:
    """Add the parts of a task, each scaled to their common maximum."""
    with T.serial(task.rows) as r, T.serial(shared.count) as part:
        where = b.index(index * shared.count + part)
        old, new = b.let(task.top[r]), b.let(shared.top[where, r])
        top = b.let(T.max(old, new))
        shrink, grow = b.let(b.exp(old - top, 1)), b.let(b.exp(new - top, 1))
        b.store(task.top, top, (r,), 1)
        b.store(task.total, task.total[r] * shrink + shared.total[where, r] * grow, (r,), 1)
        for offset, lanes in b.widths(one.head_dim, one.tile.lanes):
            mine = b.load(task.out, (r, offset), lanes) * b.splat(shrink, lanes)
            theirs = b.load(shared.out, (where, r, offset), lanes) * b.splat(grow, lanes)
            b.store(task.out, mine + theirs, (r, offset), lanes)


def _finish(one: Attention, task: Task) -> None:
    """Divide by the sums and write the rows."""
    with T.serial(task.rows) as r:
        query, head = _place(one, task, b.index(task.first + r))
        inverse = b.let(T.float32(1) / task.total[r])
        for offset, lanes in b.widths(one.head_dim, one.tile.lanes):
            value = b.load(task.out, (r, offset), lanes) * b.splat(inverse, lanes)
            b.store(one.y, value, (task.at, query, head, offset), lanes)
