"""Attention of one new token: the keys are shared out to blocks, whose results are then joined.

A step reads every key and value once and computes little with them, so what counts is that all
multiprocessors read at once. The keys that are seen are cut into at most ``splits`` shares. How
long a share is follows from the position, which is read on the device: the launch is the same for
every position, as the replay of a CUDA graph demands, and shares that are not needed end at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import lanes as ln
from maxtool.compiler.kernels.cuda.attention_plan import THREADS, Split
from maxtool.compiler.kernels.cuda.attention_share import Read, Share, short
from maxtool.compiler.kernels.cuda.flash import STATIC
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
) -> Any:  # noqa: ANN401
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
            _attend(
                one, place, given, lambda head, at: neighbours(q, (place.at, 0, head, at), split)
            )
    return made.function


def attention_step(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dim: int,
    scores: Scores,
    dtype: str,
    splits: int,
) -> Any:  # noqa: ANN401
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
            row = b.index(b.clamped(first[0], angles))
            angle = _Angle(split, dim // 2, cos, sin, row)

            def rotated(source: b.Buffer) -> Read:
                return lambda head, at: angle.rotated(source, (place.at, 0, head), at)

            def plain(head: b.Expr, at: b.Expr) -> list[b.Expr]:
                return neighbours(v, (place.at, 0, head, at), split)

            with b.when(T.And(place.first < place.stop, place.stop == position[0] + 1)):
                _write(one, place, caches[0], rotated(k))
                _write(one, place, caches[1], plain)
                b.barrier()
            _attend(one, place, given, rotated(q))
    return made.function


def takes_steps(split: Split, dim: int) -> bool:
    """Whether one kernel can rotate and attend.

    The queries of a group must be in one block, since others would wait for what it writes; and
    what a thread holds must be rotated by one half of the angles.
    """
    return split.chunks == 1 and dim // 2 % split.lanes == 0


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


def _attend(one: Share, place: Place, given: _Arguments, read: Read) -> None:
    """Everything that a block does with the keys of its share, if there are any."""
    left = (given.out, given.sums, (place.at,), place.base, place.share)
    step = one.split.step

    def work() -> None:
        one.start(read, place.base)
        rounds = short(T.truncdiv(place.stop - place.first + (step - 1), b.int32(step)))
        with T.serial(rounds) as i:
            start = short(place.first + i * step)
            one.round(given.k, given.v, (place.at, place.kv), start, place.stop)
        one.join_streams()
        one.finish(*left)

    b.either(place.first < place.stop, work, lambda: one.nothing(*left[1:]))


def _write(one: Share, place: Place, cache: b.Buffer, read: Read) -> None:
    """Write the token's key or value, by the lanes of one stream, as the last of a share."""
    lanes, dtype = one.split.lanes, one.split.dtype
    for piece in range(one.split.pieces):
        at, inside = one.place(piece)
        mine = one.thread < one.split.stream
        with b.when(mine if inside is None else T.And(mine, inside)):
            numbers = b.scratch((lanes,))
            for lane, number in enumerate(read(place.kv, at)):
                b.store(numbers, number, (lane,), 1)
            ln.write(cache, numbers, (place.at, place.kv, place.stop - 1, at), lanes, dtype)


def neighbours(source: b.Buffer, at: tuple[b.Index, ...], split: Split) -> list[b.Expr]:
    """As many float32 numbers as a thread holds of a key in one load."""
    width = min(split.lanes, 4)
    *outer, last = at
    loads = [
        ln.read(source, (*outer, last + o), width, "float32") for o in range(0, split.lanes, width)
    ]
    return [one[lane] for one in loads for lane in range(width)]


@dataclass(frozen=True, slots=True)
class _Angle:
    """The angles of the token.

    Attributes:
        split: What a thread holds of a head.
        half: Pairs that are rotated.
        cos: Cosines.
        sin: Sines.
        row: The row of both.
    """

    split: Split
    half: int
    cos: b.Buffer
    sin: b.Buffer
    row: b.Expr

    def rotated(self, source: b.Buffer, at: tuple[b.Index, ...], place: b.Expr) -> list[b.Expr]:
        """Neighbours of a head, rotated; those beyond the pairs as they are."""
        low, inside = place < self.half, place < 2 * self.half
        zero = b.int32(0)
        angle = T.Select(low, place, T.Select(inside, place - self.half, zero))
        partner = T.Select(low, place + self.half, angle)
        own, other = (neighbours(source, (*at, one), self.split) for one in (place, partner))
        cos, sin = (neighbours(one, (self.row, angle), self.split) for one in (self.cos, self.sin))
        turned = [
            b.let(x * c + T.Select(low, -y, y) * s)
            for x, y, c, s in zip(own, other, cos, sin, strict=True)
        ]
        if 2 * self.half == self.split.head_dim:
            return turned
        return [T.Select(inside, one, x) for one, x in zip(turned, own, strict=True)]
