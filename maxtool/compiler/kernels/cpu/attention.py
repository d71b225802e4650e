"""Attention over a cache, or over the sequence itself, with grouped heads and windows.

A task is a tile of rows that share a key head; a row is one query of one head. Keys come in blocks:
scores of a block, their running maximum and sum (the online softmax), then the block's values.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import CpuTarget, RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.attention_task import (
    HIDDEN,
    AttentionKernel,
    AttentionTask,
    Options,
    Seen,
)
from maxtool.compiler.kernels.cpu.cached_rows import QUANTS, WORDS, CachedRows
from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.key_block import KEYS, ROWS, TILE_ROWS
from maxtool.compiler.kernels.cpu.quantize_q8_0 import BLOCK
from maxtool.compiler.quantized_layout import GROUP


@dataclass(frozen=True, slots=True)
class PartialResults:
    """Results of parts of one query's keys: [task * count + part, row, ...]."""

    count: b.Expr  # parts of each task
    top: b.Buffer  # maxima
    total: b.Buffer  # sums of exponentials
    out: b.Buffer  # weighted values


def attention(
    tile: RegisterTile,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    dtype: str = "float32",
    sinks: bool = False,
    causal: bool = True,
    chunked: bool = False,
) -> b.PrimFunc:
    """Build attention over keys and values in ``dtype``.

    Parameters of the kernel: q[batch, seq, heads, head_dim], k[batch, kv_heads, head_dim, context],
    v[batch, kv_heads, context, head_dim], position[1] int32, y like q. Query i sees the keys 0 to
    position + i, and with a window only the last ``window`` of them, or where these are ``chunked``
    those of its own chunk of as many; its own position included. One that is not ``causal`` sees
    those of all queries, too. With ``sinks``, sink[heads] before y has the score of one more key of
    each head.
    """
    seen = Seen(window, chunked, causal)
    options = Options(heads, kv_heads, head_dim, scale, seen, softcap, dtype, tile, sinks=sinks)
    return _built(f"attention_{heads}_{kv_heads}_{head_dim}", options, has_slots=False)


def slot_attention(
    tile: RegisterTile,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    dtype: str = "float32",
    sinks: bool = False,
    causal: bool = True,
    chunked: bool = False,
) -> b.PrimFunc:
    """Build the same over a cache with slots, of which each row of the batch has one.

    Parameters of the kernel: q[batch, seq, heads, head_dim], k[slots, kv_heads, head_dim, context],
    v[slots, kv_heads, context, head_dim], position[batch] int32 and slot[batch] int32 of each row,
    y like q. A slot outside the cache stands for its first or last one.
    """
    seen = Seen(window, chunked, causal)
    options = Options(heads, kv_heads, head_dim, scale, seen, softcap, dtype, tile, sinks=sinks)
    return _built(f"slot_attention_{heads}_{kv_heads}_{head_dim}", options, has_slots=True)


def quantized_attention(
    target: CpuTarget,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    slots: bool = False,
    sinks: bool = False,
    causal: bool = True,
    chunked: bool = False,
) -> b.PrimFunc:
    """Build the same, or ``slot_attention``, over keys and values in blocks of Q8_0.

    Parameters of the kernel: k[..., head_dim / 4, context] int32, each of four neighbours of a head
    from the lowest byte on, k_scale[..., head_dim / 32, context] float16, v int8 and
    v_scale[..., context, head_dim / 32] float16 in place of k and v.
    """
    machine = instruction_set(target)
    seen = Seen(window, chunked, causal)
    options = Options(
        heads, kv_heads, head_dim, scale, seen, softcap, QUANTS, target.tile, machine, sinks
    )
    into = "_slots" if slots else ""
    name = f"quantized_attention_{heads}_{kv_heads}_{head_dim}{into}"
    return _built(name, options, has_slots=slots)


def _built(name: str, options: Options, *, has_slots: bool) -> b.PrimFunc:
    kv_heads, head_dim = options.kv_heads, options.head_dim
    with b.kernel(name) as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        caches = kernel.dim("slots") if has_slots else batch
        q = kernel.argument("q", (batch, seq, options.heads, head_dim))
        k, v = _cache(kernel, options, (caches, kv_heads), context)
        position = kernel.argument("position", (batch if has_slots else 1,), "int32")
        slot = kernel.argument("slot", (batch,), "int32") if has_slots else None
        sink = kernel.argument("sink", (options.heads,)) if options.sinks else None
        y = kernel.argument("y", (batch, seq, options.heads, head_dim))
        _emit(AttentionKernel(options, batch, seq, context, q, k, v, position, slot, sink, y))
    return kernel.function


def _cache(
    kernel: b.Kernel, options: Options, heads: tuple[b.Expr, int], context: b.Expr
) -> tuple[CachedRows, CachedRows]:
    """Declare keys and values."""
    dim, dtype = options.head_dim, options.dtype
    if options.integers is None:
        keys = CachedRows.of_floats(kernel, "k", dtype, (*heads, dim, context))
        return keys, CachedRows.of_floats(kernel, "v", dtype, (*heads, context, dim))
    blocks = (*heads, dim // BLOCK, context), (*heads, context, dim // BLOCK)
    words = (*heads, dim // GROUP, context)
    keys = CachedRows.of_blocks(kernel, "k", WORDS, words, blocks[0])
    return keys, CachedRows.of_blocks(kernel, "v", QUANTS, (*heads, context, dim), blocks[1])


def _emit(kernel: AttentionKernel) -> None:
    """All tasks on all threads; one query's keys are shared out too, and the parts then joined."""
    options = kernel.options
    tiles = T.Bind(b.ceildiv(kernel.seq * options.group, ROWS))
    rows = b.greatest(kernel.batch, 1)
    share = b.greatest(b.quotient(b.integer(options.parts), rows), 1)
    parts = T.Bind(T.Select(kernel.seq == 1, share, b.integer(1)))
    tasks = T.Bind(kernel.batch * options.kv_heads * tiles)
    space = T.Bind(T.Select(parts == 1, b.integer(1), tasks * parts))
    shared = PartialResults(
        parts,
        top=b.workspace((space, ROWS)),
        total=b.workspace((space, ROWS)),
        out=b.workspace((space, ROWS, options.head_dim)),
    )
    with T.parallel(tasks * parts) as index:
        task = _start(kernel, b.index(b.quotient(index, parts)), tiles)
        _run(task, parts, b.remainder(index, parts))
        b.either(parts == 1, lambda: _finish(task), lambda: _hand_over(task, shared, index))
    with b.when(parts > 1), T.serial(tasks) as index:
        task = _start(kernel, index, tiles)
        _join(task, shared, index)
        _finish(task)


def _start(kernel: AttentionKernel, index: b.Expr, tiles: b.Expr) -> AttentionTask:
    """Take the memory of a task; load and scale its queries."""
    options = kernel.options
    pair = b.index(b.quotient(index, tiles))
    first = b.index(b.remainder(index, tiles) * ROWS)
    at = b.index(b.quotient(pair, options.kv_heads))
    task = AttentionTask(
        kernel=kernel,
        at=at,
        cache=kernel.cache_of(at),
        position=kernel.position_of(at),
        head=b.index(b.remainder(pair, options.kv_heads)),
        first=first,
        rows=b.index(b.least(kernel.seq * options.group - first, ROWS)),
        queries=b.scratch((ROWS, options.head_dim)),
        keys=kernel.key_block(),
        scores=b.scratch((ROWS, KEYS)),
        top=b.scratch((ROWS,)),
        total=b.scratch((ROWS,)),
        out=b.scratch((ROWS, options.head_dim)),
    )
    with T.serial(task.groups * TILE_ROWS) as r:
        b.store(task.top, T.float32(HIDDEN), (r,))
        b.store(task.total, T.float32(0), (r,))
        last = kernel.seq * options.group - 1
        query, head = task.place_of(b.index(b.least(task.first + r, last)))
        for offset, width in b.widths(options.head_dim, options.tile.width):
            value = b.load(kernel.q, (task.at, query, head, offset), width)
            b.store(task.queries, value * b.splat(options.scale, width), (r, offset), width)
            b.store(task.out, b.splat(0.0, width), (r, offset), width)
    return task


def _run(task: AttentionTask, parts: b.Expr, part: b.Expr) -> None:
    """Walk this part's share of the blocks of keys that any row of the tile sees."""
    options = task.options
    last = task.last_key(task.first + task.rows - 1)
    end = b.index(b.least(last + 1, task.kernel.context))
    begin = b.integer(0)
    first = b.index(task.own_key(task.first))
    if (reach := options.seen.reach(first)) is not None:
        begin = b.index(b.greatest(first - reach, 0))
    blocks = b.index(b.ceildiv(b.greatest(end - begin, 0), KEYS))
    task.keys.prepare(task.queries, b.index(task.groups * TILE_ROWS))
    share = b.index(b.quotient(blocks + parts - 1, parts))
    start = b.index(part * share)
    with T.serial(b.greatest(b.least(blocks - start, share), 0)) as block:
        base = b.index(begin + (start + block) * KEYS)
        count = b.index(b.least(end - base, KEYS))
        task.keys.copy((task.cache, task.head), base, count)
        following = task.cache, task.head, b.index(base + KEYS)
        with T.serial(task.groups) as group:
            task.keys.score(task.queries, b.index(group * TILE_ROWS), task.scores, following)
        with T.serial(task.rows) as r:
            task.softmax_row(r, base)
        with T.serial(task.groups) as group:
            task.add_values(b.index(group * TILE_ROWS), base, count)


def _hand_over(task: AttentionTask, shared: PartialResults, index: b.Expr) -> None:
    """Leave a part's results for whoever joins them."""
    with T.serial(task.rows) as r:
        b.store(shared.top, task.top[r], (index, r))
        b.store(shared.total, task.total[r], (index, r))
        for offset, width in b.widths(task.options.head_dim, task.options.tile.width):
            value = b.load(task.out, (r, offset), width)
            b.store(shared.out, value, (index, r, offset), width)


def _join(task: AttentionTask, shared: PartialResults, index: b.Expr) -> None:
    """Add the parts of a task, each scaled to their common maximum."""
    with T.serial(task.rows) as r, T.serial(shared.count) as part:
        where = b.index(index * shared.count + part)
        old, new = b.let(task.top[r]), b.let(shared.top[where, r])
        top = b.let(T.max(old, new))
        shrink, grow = b.let(b.exp(old - top, 1)), b.let(b.exp(new - top, 1))
        b.store(task.top, top, (r,))
        b.store(task.total, task.total[r] * shrink + shared.total[where, r] * grow, (r,))
        for offset, width in b.widths(task.options.head_dim, task.options.tile.width):
            mine = b.load(task.out, (r, offset), width) * b.splat(shrink, width)
            theirs = b.load(shared.out, (where, r, offset), width) * b.splat(grow, width)
            b.store(task.out, mine + theirs, (r, offset), width)


def _finish(task: AttentionTask) -> None:
    """Divide by the sums and write the rows."""
    with T.serial(task.rows) as r:
        query, head = task.place_of(b.index(task.first + r))
        inverse = b.let(T.float32(1) / _with_sink(task, r, head))
        for offset, width in b.widths(task.options.head_dim, task.options.tile.width):
            value = b.load(task.out, (r, offset), width) * b.splat(inverse, width)
            b.store(task.kernel.y, value, (task.at, query, head, offset), width)


def _with_sink(task: AttentionTask, row: b.Expr, head: b.Expr) -> b.Expr:
    """The sum of a row's exponentials, with that of one more key if there is such."""
    sink, total = task.kernel.sink, task.total[row]
    return total if sink is None else total + b.exp(sink[head] - task.top[row], 1)
