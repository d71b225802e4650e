"""Attention of one new token: the keys are shared out to blocks, whose results are then joined.

A step reads every key and value once and computes little with them, so what counts is that all
multiprocessors read at once. The keys that are seen are cut into at most ``splits`` shares. How
long a share is follows from the position, which is read on the device: the launch is the same for
every position, as the replay of a CUDA graph demands, and shares that are not needed end at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import lanes as ln
from maxtool.compiler.kernels.cuda.attention_plan import THREADS, Split
from maxtool.compiler.kernels.cuda.attention_share import Share, short
from maxtool.compiler.kernels.cuda.flash import STATIC
from maxtool.compiler.kernels.cuda.rope import Angle, Rotation
from maxtool.compiler.kernels.cuda.scores import Scores
from maxtool.errors import CompilationFailed


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block is.

    Attributes:
        at: The sequence.
        kv: The head of keys.
        share: Which of the shares.
        base: The head of its first query.
        first: Its first key, int32.
        stop: The key after its last, int32.
    """

    at: b.Expr
    kv: b.Expr
    share: b.Expr
    base: b.Expr
    first: b.Expr
    stop: b.Expr


@dataclass(frozen=True, slots=True)
class _Arguments:
    """What both kernels are given: caches, the position, and what they leave."""

    batch: b.Expr
    context: b.Expr
    k: b.Buffer
    v: b.Buffer
    position: b.Buffer
    out: b.Buffer
    sums: b.Buffer


def attention_split(
    heads: int, kv_heads: int, head_dim: int, scores: Scores, dtype: str, splits: int
) -> b.PrimFunc:
    """Build the shares of attention of one token.

    Parameters of the kernel: q[batch, 1, heads, head_dim], k and v[batch, kv_heads, context,
    head_dim] of ``dtype``, position[1] int32, out[batch, heads, splits, head_dim] float32,
    sums[batch, heads, splits, 2] float32. A share leaves the values weighted by powers of two of
    the scores, and the greatest score and the sum of the powers. A share without keys has the sum
    0, and leaves nothing in ``out``.
    """
    split = Split(heads // kv_heads, head_dim, dtype)
    with b.kernel(f"attention_split_{heads}_{kv_heads}_{head_dim}") as made:
        batch, context = made.dim("batch"), made.dim("context")
        q = made.argument("q", (batch, 1, heads, head_dim))
        k, v = _caches(made, (batch, kv_heads, context, head_dim), dtype)
        position = made.argument("position", (1,), "int32")
        out, sums = _results(made, (batch, heads, splits, head_dim))
        given = _Arguments(batch, context, k, v, position, out, sums)
        with _blocks(split, scores, splits, kv_heads, given) as (place, one):
            _attend(one, place, given, lambda queries: _copy(one, place, q, queries))
    return made.function


def attention_step(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dim: int,
    scores: Scores,
    dtype: str,
    splits: int,
) -> b.PrimFunc:
    """Build the same with the rotation of the token's query and key, and both writes to the cache.

    Parameters of the kernel: keys and values[batch, kv_heads, context, head_dim] of ``dtype``
    (changed in place), q[batch, 1, heads, head_dim], k and v[batch, 1, kv_heads, head_dim], cos and
    sin[angles, dim / 2], first[1] int32 of the row of the angles, position[1] int32, and out and
    sums as :func:`attention_split` leaves them. Every block rotates its queries; the one whose
    share ends with the token's key writes it before it reads. Only for plans that
    :func:`takes_steps` names.
    """
    split = Split(heads // kv_heads, head_dim, dtype)
    with b.kernel(f"attention_step_{heads}_{kv_heads}_{head_dim}") as made:
        batch, context, angles = made.dim("batch"), made.dim("context"), made.dim("angles")
        caches = _caches(made, (batch, kv_heads, context, head_dim), dtype)
        q = made.argument("q", (batch, 1, heads, head_dim))
        k, v = (made.argument(name, (batch, 1, kv_heads, head_dim)) for name in ("new_k", "new_v"))
        cos, sin = (made.argument(name, (angles, dim // 2)) for name in ("cos", "sin"))
        first = made.argument("first", (1,), "int32")
        position = made.argument("position", (1,), "int32")
        out, sums = _results(made, (batch, heads, splits, head_dim))
        given = _Arguments(batch, context, *caches, position, out, sums)
        with _blocks(split, scores, splits, kv_heads, given) as (place, one):
            angle = (cos, sin, b.index(b.clamped(first[0], angles)))
            rotation = Rotation(head_dim, dim)

            def prepare(queries: b.Buffer) -> None:
                _rotate(one, place, rotation, angle, q, queries)
                with b.when(place.stop == position[0] + 1):
                    _write(one, place, rotation, angle, (k, v), caches)

            _attend(one, place, given, prepare)
    return made.function


def takes_steps(split: Split) -> bool:
    """Whether one kernel can rotate and attend.

    The queries of a group must be in one block, since others would wait for what it writes.
    """
    return split.chunks == 1


def _caches(made: b.Kernel, sizes: tuple[b.Index, ...], dtype: str) -> tuple[b.Buffer, b.Buffer]:
    kind = b.STORAGE[dtype]
    return made.argument("k", sizes, kind), made.argument("v", sizes, kind)


def _results(made: b.Kernel, sizes: tuple[b.Index, ...]) -> tuple[b.Buffer, b.Buffer]:
    return made.argument("out", sizes), made.argument("sums", (*sizes[:3], 2))


@contextmanager
def _blocks(
    split: Split, scores: Scores, splits: int, kv_heads: int, given: _Arguments
) -> Iterator[tuple[Place, Share]]:
    """Launch the blocks: where each is, and what it holds.

    Raises:
        CompilationFailed: If heads are so wide that a block cannot add up its results.
    """
    if split.shared_memory > STATIC:
        raise CompilationFailed(
            f"attention with heads of {split.head_dim} elements does not fit into the "
            f"{STATIC >> 10} KiB of shared memory of a block"
        )
    blocks = [splits * split.chunks, kv_heads, given.batch]
    with b.launch(blocks, THREADS, resident=split.resident) as (x, kv, at, thread):
        share, chunk = b.index(b.quotient(x, split.chunks)), b.remainder(x, split.chunks)
        after = T.Cast("int64", given.position[0]) + 1
        end = b.index(b.greatest(b.least(after, given.context), 0))
        begin = b.index(scores.first(end - 1))
        length = b.index(_length(end - begin, splits, split.step))
        first = short(begin + share * length)
        stop = short(b.least(T.Cast("int64", first) + length, end))
        one = Share(split, scores, thread, b.index(chunk * split.queries))
        base = b.index(kv * split.group + one.query)
        yield Place(at, kv, share, base, first, stop), one


def _length(keys: b.Expr, splits: int, step: int) -> b.Expr:
    """Keys of each share: whole rounds of a block."""
    return b.ceildiv(b.ceildiv(keys, splits), step) * step


def _attend(
    one: Share, place: Place, given: _Arguments, prepare: Callable[[b.Buffer], None]
) -> None:
    """Everything that a block does with the keys of its share, if there are any.

    Args:
        one: The share.
        place: Where the block is.
        given: The arguments of the kernel.
        prepare: Puts the queries into shared memory ``[queries, head_dim]``; what else it writes
            is there, too, when the keys are read.
    """
    left = (given.out, given.sums, (place.at,), place.base, place.share)
    split, step = one.split, one.split.step

    def work() -> None:
        queries = b.shared((split.queries, split.head_dim))
        prepare(queries)
        b.barrier()
        one.start(queries)
        rounds = short(T.truncdiv(place.stop - place.first + (step - 1), b.int32(step)))
        with T.serial(rounds) as i:
            start = short(place.first + i * step)
            one.round(given.k, given.v, (place.at, place.kv), start, place.stop)
        one.join_streams()
        one.finish(*left)

    b.either(place.first < place.stop, work, lambda: one.nothing(*left[1:]))


def _each_head(
    one: Share, place: Place, units: int, body: Callable[[b.Expr, b.Expr, b.Expr], None]
) -> None:
    """Run ``body(g, head, unit)`` for the units of each query; one beyond the group is its last."""
    split = one.split

    def work(index: b.Expr) -> None:
        g = b.let(T.truncdiv(index, b.int32(units)))
        wide = T.Cast("int64", g)
        last = wide if split.chunks == 1 else b.least(wide, split.group - 1 - one.query)
        body(g, b.index(place.base + last), b.let(index - g * units))

    ln.strided(split.queries * units, one.thread, THREADS, work)


def _copy(one: Share, place: Place, q: b.Buffer, queries: b.Buffer) -> None:
    """Put the queries of a block into shared memory."""
    width = ln.widest("float32", one.split.head_dim)

    def copy(g: b.Expr, head: b.Expr, unit: b.Expr) -> None:
        numbers = ln.read(q, (place.at, 0, head, unit * width), width, "float32")
        ln.write(queries, numbers, (g, unit * width), width, "float32")

    _each_head(one, place, one.split.head_dim // width, copy)


def _rotate(
    one: Share,
    place: Place,
    rotation: Rotation,
    angle: Angle,
    q: b.Buffer,
    queries: b.Buffer,
) -> None:
    """Put them there rotated."""
    width = rotation.width()

    def rotate(g: b.Expr, head: b.Expr, unit: b.Expr) -> None:
        source = (q, (place.at, 0, head))
        rotation.apply(unit, width, source, angle, (queries, (g,), "float32"))

    _each_head(one, place, rotation.units(width), rotate)


def _write(
    one: Share,
    place: Place,
    rotation: Rotation,
    angle: Angle,
    new: tuple[b.Buffer, b.Buffer],
    caches: tuple[b.Buffer, b.Buffer],
) -> None:
    """Write the token's key, rotated, and its value, as the last of a share."""
    dtype, head_dim = one.split.dtype, one.split.head_dim
    width = rotation.width(dtype)
    (keys, values), (k, v) = caches, new
    source, target = (place.at, 0, place.kv), (place.at, place.kv, place.stop - 1)

    def rotate(unit: b.Expr) -> None:
        rotation.apply(unit, width, (k, source), angle, (keys, target, dtype))

    def copy(unit: b.Expr) -> None:
        numbers = ln.read(v, (*source, unit * width), width, "float32")
        ln.write(values, numbers, (*target, unit * width), width, dtype)

    ln.strided(rotation.units(width), one.thread, THREADS, rotate)
    ln.strided(head_dim // width, one.thread, THREADS, copy)
