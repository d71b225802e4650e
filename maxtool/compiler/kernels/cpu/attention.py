"""Causal attention over a cache, or over the sequence itself, with grouped heads and windows.

A task is a tile of rows that share a key head; a row is one query of one head. Keys come in blocks:
scores of a block, their running maximum and sum (the online softmax), then the block's values.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.attention_task import (
    HIDDEN,
    KEYS,
    ROWS,
    TILE_ROWS,
    AttentionKernel,
    AttentionTask,
    add_values,
    copy_keys,
    place_of,
    score_block,
    softmax_row,
)


@dataclass(frozen=True, slots=True)
class PartialResults:
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
    tile: RegisterTile,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> b.PrimFunc:
    """Build causal attention.

    Parameters of the kernel: q[batch, seq, heads, head_dim], k[batch, kv_heads, head_dim, context],
    v[batch, kv_heads, context, head_dim], position[1] int32, y like q. Query i sees the keys 0 to
    position + i, and with a window only the last ``window`` of them; its own position included.

    Args:
        tile: The target's registers.
        heads: Query heads, a multiple of ``kv_heads``.
        kv_heads: Key and value heads.
        head_dim: Elements of a head.
        scale: Factor of the scores, usually ``head_dim ** -0.5``.
        window: Keys a query sees at most.
        softcap: Bound of the scores, which become ``softcap * tanh(score / softcap)``.
    """
    with b.kernel(f"attention_{heads}_{kv_heads}_{head_dim}") as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        q = kernel.argument("q", (batch, seq, heads, head_dim))
        k = kernel.argument("k", (batch, kv_heads, head_dim, context))
        v = kernel.argument("v", (batch, kv_heads, context, head_dim))
        position = kernel.argument("position", (1,), "int32")
        y = kernel.argument("y", (batch, seq, heads, head_dim))
        start = T.Bind(T.Cast("int64", position[0]))
        sizes, runtime = (heads, kv_heads, head_dim), (batch, seq, context)
        attention_kernel = AttentionKernel(
            *sizes, scale, window, softcap, tile, *runtime, q, k, v, start, y
        )
        _emit(attention_kernel)
    return kernel.function


def _emit(attention_kernel: AttentionKernel) -> None:
    """All tasks on all threads; one query's keys are shared out too, and the parts then joined."""
    tiles = T.Bind(b.ceildiv(attention_kernel.seq * attention_kernel.group, ROWS))
    parts = T.Bind(
        T.Select(attention_kernel.seq == 1, b.integer(attention_kernel.parts), b.integer(1))
    )
    tasks = T.Bind(attention_kernel.batch * attention_kernel.kv_heads * tiles)
    space = T.Bind(T.Select(parts == 1, b.integer(1), tasks * parts))
    shared = PartialResults(
        parts,
        top=b.workspace((space, ROWS)),
        total=b.workspace((space, ROWS)),
        out=b.workspace((space, ROWS, attention_kernel.head_dim)),
    )
    with T.parallel(tasks * parts) as index:
        task = _start(attention_kernel, b.index(b.quotient(index, parts)), tiles)
        _run(attention_kernel, task, parts, b.remainder(index, parts))
        b.either(
            parts == 1,
            lambda: _finish(attention_kernel, task),
            lambda: _hand_over(attention_kernel, task, shared, index),
        )
    with b.when(parts > 1), T.serial(tasks) as index:
        task = _start(attention_kernel, index, tiles)
        _join(attention_kernel, task, shared, index)
        _finish(attention_kernel, task)


def _start(attention_kernel: AttentionKernel, index: b.Expr, tiles: b.Expr) -> AttentionTask:
    """Take the memory of a task; load and scale its queries."""
    pair = b.index(b.quotient(index, tiles))
    first = b.index(b.remainder(index, tiles) * ROWS)
    task = AttentionTask(
        at=b.index(b.quotient(pair, attention_kernel.kv_heads)),
        head=b.index(b.remainder(pair, attention_kernel.kv_heads)),
        first=first,
        rows=b.index(b.least(attention_kernel.seq * attention_kernel.group - first, ROWS)),
        queries=b.scratch((ROWS, attention_kernel.head_dim)),
        keys=b.scratch((attention_kernel.head_dim, KEYS)),
        scores=b.scratch((ROWS, KEYS)),
        top=b.scratch((ROWS,)),
        total=b.scratch((ROWS,)),
        out=b.scratch((ROWS, attention_kernel.head_dim)),
    )
    with T.serial(task.groups * TILE_ROWS) as r:
        b.store(task.top, T.float32(HIDDEN), (r,))
        b.store(task.total, T.float32(0), (r,))
        query, head = place_of(
            attention_kernel,
            task,
            b.index(b.least(task.first + r, attention_kernel.seq * attention_kernel.group - 1)),
        )
        for offset, width in b.widths(attention_kernel.head_dim, attention_kernel.tile.width):
            value = b.load(attention_kernel.q, (task.at, query, head, offset), width)
            b.store(
                task.queries, value * b.splat(attention_kernel.scale, width), (r, offset), width
            )
            b.store(task.out, b.splat(0.0, width), (r, offset), width)
    return task


def _run(
    attention_kernel: AttentionKernel, task: AttentionTask, parts: b.Expr, part: b.Expr
) -> None:
    """Walk this part's share of the blocks of keys that any row of the tile sees."""
    last = b.quotient(task.first + task.rows - 1, attention_kernel.group)
    end = b.index(b.least(attention_kernel.position + last + 1, attention_kernel.context))
    begin = b.integer(0)
    if attention_kernel.window is not None:
        lowest = (
            attention_kernel.position
            + b.quotient(task.first, attention_kernel.group)
            - (attention_kernel.window - 1)
        )
        begin = b.index(b.greatest(lowest, 0))
    blocks = b.index(b.ceildiv(b.greatest(end - begin, 0), KEYS))
    share = b.index(b.quotient(blocks + parts - 1, parts))
    start = b.index(part * share)
    with T.serial(b.greatest(b.least(blocks - start, share), 0)) as block:
        base = b.index(begin + (start + block) * KEYS)
        count = b.index(b.least(end - base, KEYS))
        copy_keys(attention_kernel, task, base, count)
        with T.serial(task.groups) as group:
            score_block(attention_kernel, task, b.index(group * TILE_ROWS))
        with T.serial(task.rows) as r:
            softmax_row(attention_kernel, task, r, base)
        with T.serial(task.groups) as group:
            add_values(attention_kernel, task, b.index(group * TILE_ROWS), base, count)


def _hand_over(
    attention_kernel: AttentionKernel, task: AttentionTask, shared: PartialResults, index: b.Expr
) -> None:
    """Leave a part's results for whoever joins them."""
    with T.serial(task.rows) as r:
        b.store(shared.top, task.top[r], (index, r))
        b.store(shared.total, task.total[r], (index, r))
        for offset, width in b.widths(attention_kernel.head_dim, attention_kernel.tile.width):
            value = b.load(task.out, (r, offset), width)
            b.store(shared.out, value, (index, r, offset), width)


def _join(
    attention_kernel: AttentionKernel, task: AttentionTask, shared: PartialResults, index: b.Expr
) -> None:
    """Add the parts of a task, each scaled to their common maximum."""
    with T.serial(task.rows) as r, T.serial(shared.count) as part:
        where = b.index(index * shared.count + part)
        old, new = b.let(task.top[r]), b.let(shared.top[where, r])
        top = b.let(T.max(old, new))
        shrink, grow = b.let(b.exp(old - top, 1)), b.let(b.exp(new - top, 1))
        b.store(task.top, top, (r,))
        b.store(task.total, task.total[r] * shrink + shared.total[where, r] * grow, (r,))
        for offset, width in b.widths(attention_kernel.head_dim, attention_kernel.tile.width):
            mine = b.load(task.out, (r, offset), width) * b.splat(shrink, width)
            theirs = b.load(shared.out, (where, r, offset), width) * b.splat(grow, width)
            b.store(task.out, mine + theirs, (r, offset), width)


def _finish(attention_kernel: AttentionKernel, task: AttentionTask) -> None:
    """Divide by the sums and write the rows."""
    with T.serial(task.rows) as r:
        query, head = place_of(attention_kernel, task, b.index(task.first + r))
        inverse = b.let(T.float32(1) / task.total[r])
        for offset, width in b.widths(attention_kernel.head_dim, attention_kernel.tile.width):
            value = b.load(task.out, (r, offset), width) * b.splat(inverse, width)
            b.store(attention_kernel.y, value, (task.at, query, head, offset), width)
