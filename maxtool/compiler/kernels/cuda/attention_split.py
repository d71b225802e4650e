"""Attention of one new token: the keys are shared out to blocks, whose results are then joined.

A step reads every key and value once and computes little with them, so what counts is that all
multiprocessors read at once. The keys that are seen are cut into at most ``splits`` shares. How
long a share is follows from the position, which is read on the device: the launch is the same for
every position, as the replay of a CUDA graph demands, and shares that are not needed end at once.

Within a block, the lanes of a stream hold one key together, 16 bytes each; a stream takes
``DEPTH`` keys at a time, whose loads, and those of their values, are all under way before the first
is used: 128 threads have up to 16 KiB in flight. All queries of a group that fit in registers are
multiplied with a key once it is there. Sums are float32, queries and probabilities are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import lanes as ln
from maxtool.compiler.kernels.cuda.scores import HIDDEN, Scores

THREADS = 128
WARPS = THREADS // b.WARP
# Numbers of the queries, and as many of the results, that one thread holds in registers.
HELD = 64
# Of 128 registers, those that are left for what is named in ``resident``: none spill up to here.
FITTING = 120
# Keys that a stream has under way, and how many numbers of queries leave registers for so many.
DEPTH, ROOMY = 4, 32
# Blocks that a launch should have for one sequence: two for each multiprocessor of an H100. It is
# a choice of speed alone, and one artifact runs on several GPUs.
BLOCKS = 264


@dataclass(frozen=True, slots=True)
class Split:
    """How the queries of one token and their keys are shared out.

    Attributes:
        group: Heads of queries that share a head of keys.
        head_dim: Elements of a head.
        dtype: The type of keys and values.
    """

    group: int
    head_dim: int
    dtype: str

    @property
    def lanes(self) -> int:
        """Elements in one load."""
        return ln.widest(self.dtype, self.head_dim)

    @property
    def width(self) -> int:
        """Loads that make a key."""
        return self.head_dim // self.lanes

    @property
    def stream(self) -> int:
        """Threads that hold a key together, a power of two."""
        return min(b.WARP, 1 << (self.width - 1).bit_length())

    @property
    def pieces(self) -> int:
        """Loads of each thread that make its part of a key."""
        return -(-self.width // self.stream)

    @property
    def held(self) -> int:
        """Elements of a key in one thread."""
        return self.pieces * self.lanes

    @property
    def chunks(self) -> int:
        """Blocks that share the queries of a group, where their numbers are too many for one."""
        return -(-self.group // max(1, HELD // self.held))

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return -(-self.group // self.chunks)

    @property
    def depth(self) -> int:
        """Keys that a stream has under way."""
        return DEPTH if self.queries * self.held <= ROOMY else DEPTH // 2

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor: four, whose threads have 128 registers, or two with 255.

        Registers hold queries, results, the keys and values under way, scores, maxima and sums.
        """
        numbers = 2 * self.queries * (self.held + 1) + self.depth * self.queries
        words = 2 * self.depth * self.pieces * self.lanes * ln.BITS[self.dtype] // 32
        return 4 if numbers + words <= FITTING else 2

    @property
    def streams(self) -> int:
        """Keys that a block holds at once, one in each stream."""
        return THREADS // self.stream

    @property
    def step(self) -> int:
        """Keys of a round."""
        return self.streams * self.depth


def splits_for(split: Split, kv_heads: int, keys: int | None) -> int:
    """How many shares there are at most: enough for all multiprocessors, none idle from the start.

    Args:
        split: How a block works.
        kv_heads: Heads of keys, which have blocks of their own anyhow.
        keys: Keys that a query can see; None if that is not known now.
    """
    wanted = -(-BLOCKS // (kv_heads * split.chunks))
    return wanted if keys is None else min(wanted, -(-keys // split.step))


def attention_split(
    heads: int,
    kv_heads: int,
    head_dim: int,
    scores: Scores,
    dtype: str,
    splits: int,
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
        sizes = (batch, kv_heads, context, head_dim)
        k = made.argument("k", sizes, b.STORAGE[dtype])
        v = made.argument("v", sizes, b.STORAGE[dtype])
        position = made.argument("position", (1,), "int32")
        out = made.argument("out", (batch, heads, splits, head_dim))
        sums = made.argument("sums", (batch, heads, splits, 2))
        blocks = [splits * split.chunks, kv_heads, batch]
        with b.launch(blocks, THREADS, resident=split.resident) as (x, kv, at, thread):
            share, chunk = b.index(b.quotient(x, split.chunks)), b.remainder(x, split.chunks)
            end = b.index(b.greatest(b.least(T.Cast("int64", position[0]) + 1, context), 0))
            begin = b.index(scores.first(end - 1))
            length = b.index(_length(end - begin, splits, split.step))
            first = _short(begin + share * length)
            stop = _short(b.least(T.Cast("int64", first) + length, end))
            one = _Share(split, scores, thread, b.index(chunk * split.queries))
            base = b.index(kv * split.group + one.query)

            def work() -> None:
                one.start(q, (at, 0), base)
                rounds = _short(T.truncdiv(stop - first + (split.step - 1), b.int32(split.step)))
                with T.serial(rounds) as i:
                    one.round(k, v, (at, kv), _short(first + i * split.step), stop)
                one.join_streams()
                one.finish(out, sums, (at,), base, share)

            b.either(first < stop, work, lambda: one.nothing(sums, (at,), base, share))
    return made.function


def _length(keys: b.Expr, splits: int, step: int) -> b.Expr:
    """Keys of each share: whole rounds of a block."""
    return b.ceildiv(b.ceildiv(keys, splits), step) * step


def _short(value: b.Expr) -> b.Expr:
    """The number of a key, computed once: positions are int32, and an int64 takes two registers."""
    return b.let(T.Cast("int32", value), 1, "int32")


class _Share:
    """One block's share: the queries and results that a thread holds, and what it does with them.

    Args:
        split: How the work is shared out.
        scores: What becomes of products.
        thread: The thread's index.
        query: The first query of the block in its group.
    """

    def __init__(self, split: Split, scores: Scores, thread: b.Expr, query: b.Expr) -> None:
        self.split, self.scores, self.thread, self.query = split, scores, thread, query
        self.lane = thread % split.stream
        self.q = b.scratch((split.queries, split.held))
        self.out = b.scratch((split.queries, split.held))
        self.top, self.total = b.scratch((split.queries,)), b.scratch((split.queries,))

    def start(self, q: b.Buffer, at: tuple[b.Index, ...], base: b.Expr) -> None:
        """Load the queries; one beyond the group repeats its last."""
        split = self.split
        for g in range(split.queries):
            last = split.group - 1 - g
            head = base + g if split.chunks == 1 else base + b.least(last - self.query, 0) + g
            b.store(self.top, T.float32(HIDDEN), (g,), 1)
            b.store(self.total, T.float32(0), (g,), 1)
            for piece in range(split.pieces):
                place, inside = self._place(piece)
                for lane in range(split.lanes):
                    value = b.let(q[(*at, head, place + lane)])
                    value = value if inside is None else T.Select(inside, value, T.float32(0))
                    b.store(self.q, value, (g, piece * split.lanes + lane), 1)
                    b.store(self.out, T.float32(0), (g, piece * split.lanes + lane), 1)

    def _place(self, piece: int) -> tuple[b.Expr, b.Expr | None]:
        """Where a piece of this thread begins in a head, and whether it is one; None if always."""
        split = self.split
        unit = self.lane + piece * split.stream
        if (piece + 1) * split.stream <= split.width:
            return unit * split.lanes, None
        return T.min(unit, b.int32(split.width - 1)) * split.lanes, unit < split.width

    def round(
        self, k: b.Buffer, v: b.Buffer, at: tuple[b.Expr, ...], start: b.Expr, stop: b.Expr
    ) -> None:
        """Take the next ``depth`` keys of every stream in."""
        split = self.split
        mine = [
            _short(start + self.thread // split.stream + n * split.streams)
            for n in range(split.depth)
        ]
        places = [_short(T.min(key, stop - 1)) for key in mine]
        keys, values = ([self._fetch(one, (*at, key)) for key in places] for one in (k, v))
        found = b.scratch((split.depth, split.queries))
        for n, key in enumerate(mine):
            self._score(found, n, keys[n], key < stop)
        for g in range(split.queries):
            self._take(found, g)
        for n in range(split.depth):
            self._add(found, n, values[n])

    def _fetch(self, source: b.Buffer, at: tuple[b.Expr, ...]) -> list[b.Buffer]:
        split = self.split
        return [
            ln.fetch(source, (*at, self._place(piece)[0]), split.lanes, split.dtype)
            for piece in range(split.pieces)
        ]

    def _score(self, found: b.Buffer, n: int, key: list[b.Buffer], seen: b.Expr) -> None:
        """The scores of one key, which the lanes of its stream add up; minus infinity if unseen."""
        split = self.split
        numbers = [ln.unpack(one, split.lanes, split.dtype) for one in key]
        for g in range(split.queries):
            own = b.scratch((1,))
            b.store(own, T.float32(0), (0,), 1)
            for i in range(split.held):
                element = numbers[i // split.lanes][i % split.lanes]
                b.store(own, own[0] + self.q[g, i] * element, (0,), 1)
            whole = b.warp_reduce(own[0], b.add, split.stream)
            score = b.let(self.scores.of(whole))
            b.store(found, T.Select(seen, score, T.float32(HIDDEN)), (n, g), 1)

    def _take(self, found: b.Buffer, g: int) -> None:
        """Turn the scores of one query into powers, and scale what it has to their maximum."""
        depth = self.split.depth
        top = b.let(self.top[g])
        for n in range(depth):
            top = b.let(T.max(top, found[n, g]))
        base = b.let(self.scores.base(top))
        shrink = b.let(self.scores.power(self.top[g], base))
        b.store(self.top, top, (g,), 1)
        b.store(self.total, self.total[g] * shrink, (g,), 1)
        for i in range(self.split.held):
            b.store(self.out, self.out[g, i] * shrink, (g, i), 1)
        for n in range(depth):
            b.store(found, self.scores.power(found[n, g], base), (n, g), 1)
            b.store(self.total, self.total[g] + found[n, g], (g,), 1)

    def _add(self, found: b.Buffer, n: int, value: list[b.Buffer]) -> None:
        split = self.split
        numbers = [ln.unpack(one, split.lanes, split.dtype) for one in value]
        for g in range(split.queries):
            for i in range(split.held):
                more = found[n, g] * numbers[i // split.lanes][i % split.lanes]
                b.store(self.out, self.out[g, i] + more, (g, i), 1)

    def join_streams(self) -> None:
        """Add up what the streams of a warp have; all of them get it."""
        distance = self.split.stream
        while distance < b.WARP:
            for g in range(self.split.queries):
                theirs = b.let(b.warp_across(self.top[g], distance))
                top = b.let(T.max(self.top[g], theirs))
                base = b.let(self.scores.base(top))
                mine, more = (b.let(self.scores.power(one, base)) for one in (self.top[g], theirs))
                b.store(self.top, top, (g,), 1)
                self._join(self.total, (g,), mine, more, distance)
                for i in range(self.split.held):
                    self._join(self.out, (g, i), mine, more, distance)
            distance *= 2

    def _join(
        self, held: b.Buffer, at: tuple[int, ...], mine: b.Expr, more: b.Expr, distance: int
    ) -> None:
        theirs = b.let(b.warp_across(held[at], distance))
        b.store(held, held[at] * mine + theirs * more, at, 1)

    def finish(
        self,
        out: b.Buffer,
        sums: b.Buffer,
        at: tuple[b.Expr, ...],
        base: b.Expr,
        share: b.Expr,
    ) -> None:
        """Add up what the warps have, and leave it to whoever joins the shares."""
        split = self.split
        tops, totals = (b.shared((WARPS, split.queries)) for _ in range(2))
        outs = b.shared((WARPS, split.queries, split.head_dim))
        warp = self.thread // b.WARP
        with b.when(self.thread % b.WARP < split.stream):
            for g in range(split.queries):
                with b.when(self.lane == 0):
                    b.store(tops, self.top[g], (warp, g), 1)
                    b.store(totals, self.total[g], (warp, g), 1)
                for piece in range(split.pieces):
                    self._leave(outs, warp, g, piece)
        b.barrier()

        def leave(g: int) -> None:
            head = b.index(base + g)
            weights, top, total = _joined(self.scores, tops, totals, g)

            def element(i: b.Expr) -> None:
                value = b.let(T.float32(0))
                for one, weight in enumerate(weights):
                    value = b.let(value + weight * outs[one, g, i])
                b.store(out, value, (*at, head, share, i), 1)

            ln.strided(split.head_dim, self.thread, THREADS, element)
            with b.when(self.thread == 0):
                b.store(sums, top, (*at, head, share, 0), 1)
                b.store(sums, total, (*at, head, share, 1), 1)

        for g in range(split.queries):
            self._if_there(g, leave)

    def _leave(self, outs: b.Buffer, warp: b.Expr, g: int, piece: int) -> None:
        place, inside = self._place(piece)

        def copy() -> None:
            for lane in range(self.split.lanes):
                value = self.out[g, piece * self.split.lanes + lane]
                b.store(outs, value, (warp, g, place + lane), 1)

        if inside is None:
            return copy()
        with b.when(inside):
            copy()
        return None

    def nothing(self, sums: b.Buffer, at: tuple[b.Expr, ...], base: b.Expr, share: b.Expr) -> None:
        """Say that there was no key."""

        def say(g: int) -> None:
            b.store(sums, T.float32(0), (*at, b.index(base + g), share, 1), 1)

        with b.when(self.thread == 0):
            for g in range(self.split.queries):
                self._if_there(g, say)

    def _if_there(self, g: int, body: Callable[[int], None]) -> None:
        """Emit ``body(g)`` for a query that may lie beyond the group, in its last chunk."""
        split = self.split
        if (split.chunks - 1) * split.queries + g < split.group:
            return body(g)
        with b.when(self.query + g < split.group):
            body(g)
        return None


def _joined(
    scores: Scores, tops: b.Buffer, totals: b.Buffer, g: int
) -> tuple[list[b.Expr], b.Expr, b.Expr]:
    """The weight of each warp's result, the greatest score of all, and the sum of powers."""
    top = b.let(tops[0, g])
    for warp in range(1, WARPS):
        top = b.let(T.max(top, tops[warp, g]))
    base = b.let(scores.base(top))
    weights = [b.let(scores.power(tops[warp, g], base)) for warp in range(WARPS)]
    total = b.let(T.float32(0))
    for warp, weight in enumerate(weights):
        total = b.let(total + weight * totals[warp, g])
    return weights, top, total


def attention_join(heads: int, head_dim: int, splits: int, out: str = "float32") -> Any:  # noqa: ANN401
    """Build the join of the shares that ``attention_split`` left.

    Parameters of the kernel: parts[batch, heads, splits, head_dim], sums[batch, heads, splits, 2],
    both float32, y[batch, 1, heads, head_dim] of type ``out``. Shares whose sum is 0 had no key.
    """
    threads = max(ln.threads_for(head_dim), b.WARP)
    with b.kernel(f"attention_join_{heads}_{head_dim}_{splits}") as made:
        batch = made.dim("batch")
        parts = made.argument("parts", (batch, heads, splits, head_dim))
        sums = made.argument("sums", (batch, heads, splits, 2))
        y = made.argument("y", (batch, 1, heads, head_dim), b.STORAGE[out])
        with b.launch([heads, batch], threads) as (head, at, thread):
            weights = b.shared((splits,))
            at_sums = (at, head)
            top = _top(sums, at_sums, thread % b.WARP, splits)
            total = b.warp_reduce(_weigh(sums, at_sums, thread, splits, top, weights), b.add)
            inverse = b.let(T.float32(1) / total)
            b.barrier()

            def element(i: b.Expr) -> None:
                value = b.scratch((1,))
                b.store(value, T.float32(0), (0,), 1)
                with T.serial(splits) as share:
                    weight = b.let(weights[share])
                    with b.when(weight != T.float32(0)):
                        more = weight * parts[at, head, share, i]
                        b.store(value, value[0] + more, (0,), 1)
                b.store(y, b.to_storage(value[0] * inverse, out), (at, 0, head, i), 1)

            ln.strided(head_dim, thread, threads, element)
    return made.function


def _top(sums: b.Buffer, at: tuple[b.Expr, ...], lane: b.Expr, splits: int) -> b.Expr:
    """The greatest score of all shares, which each warp finds by itself."""
    own = b.scratch((1,))
    b.store(own, T.float32(HIDDEN), (0,), 1)

    def take(share: b.Expr) -> None:
        with b.when(sums[(*at, share, 1)] != T.float32(0)):
            b.store(own, T.max(own[0], sums[(*at, share, 0)]), (0,), 1)

    ln.strided(splits, lane, b.WARP, take)
    return b.let(b.warp_reduce(own[0], T.max))


def _weigh(
    sums: b.Buffer,
    at: tuple[b.Expr, ...],
    thread: b.Expr,
    splits: int,
    top: b.Expr,
    weights: b.Buffer,
) -> b.Expr:
    """The sum of powers of a lane's shares; the weight of each goes to shared memory."""
    own = b.scratch((1,))
    b.store(own, T.float32(0), (0,), 1)

    def weigh(share: b.Expr) -> None:
        weight = b.scratch((1,))
        b.store(weight, T.float32(0), (0,), 1)
        with b.when(sums[(*at, share, 1)] != T.float32(0)):
            b.store(weight, T.exp2(sums[(*at, share, 0)] - top), (0,), 1)
            b.store(own, own[0] + weight[0] * sums[(*at, share, 1)], (0,), 1)
        with b.when(thread < b.WARP):
            b.store(weights, weight[0], (share,), 1)

    ln.strided(splits, thread % b.WARP, b.WARP, weigh)
    return own[0]
