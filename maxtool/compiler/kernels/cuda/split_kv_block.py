"""A block that attends to a share of the keys of one token: what it holds, and what it does.

The lanes of a stream hold one key together, 16 bytes each; a stream takes ``DEPTH`` keys at a time,
whose loads, and those of their values, are all in flight before the first is used: 128 threads have
up to 16 KiB in flight. All queries of a group that fit in registers are multiplied with a key once
it is there. Sums are float32, queries and probabilities are not rounded.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.attention_scores import HIDDEN, Scores
from maxtool.compiler.kernels.cuda.split_kv_plan import THREADS, WARPS, SplitPlan


def short(value: b.Expr) -> b.Expr:
    """The number of a key, computed once: positions are int32, and an int64 takes two registers."""
    return b.let(T.Cast("int32", value))


class KeySplit:
    """One block's share: the queries and results that a thread holds, and what it does with them.

    ``query`` is the first of the block in its group.
    """

    def __init__(self, split: SplitPlan, scores: Scores, thread: b.Expr, query: b.Expr) -> None:
        self.split, self.scores, self.thread, self.query = split, scores, thread, query
        self.lane = thread % split.stream
        self.q = b.scratch((split.queries, split.held))
        self.out = b.scratch((split.queries, split.held))
        self.top, self.total = b.scratch((split.queries,)), b.scratch((split.queries,))

    def start(self, queries: b.Buffer) -> None:
        """Take the queries ``[queries, head_dim]`` from shared memory; begin with nothing seen."""
        split = self.split
        step = min(split.width, 4)
        with T.unroll(b.int32(split.queries)) as g:
            b.store(self.top, T.float32(HIDDEN), (g,))
            b.store(self.total, T.float32(0), (g,))
            for piece in range(split.pieces):
                offset, inside = self.place(piece)
                for part in range(0, split.width, step):
                    numbers = ln.read(queries, (g, offset + part), step, "float32")
                    with T.unroll(b.int32(step)) as i:
                        at = (g, piece * split.width + part + i)
                        number = numbers[i]
                        value = number if inside is None else T.Select(inside, number, T.float32(0))
                        b.store(self.q, value, at)
                        b.store(self.out, T.float32(0), at)

    def place(self, piece: int) -> tuple[b.Expr, b.Expr | None]:
        """Return a piece's start in a head, and whether it exists; None if it always does."""
        split = self.split
        unit = self.lane + piece * split.stream
        if (piece + 1) * split.stream <= split.vectors:
            return unit * split.width, None
        return T.min(unit, b.int32(split.vectors - 1)) * split.width, unit < split.vectors

    def round(
        self, k: b.Buffer, v: b.Buffer, at: tuple[b.Expr, ...], start: b.Expr, stop: b.Expr
    ) -> None:
        """Take the next ``depth`` keys of every stream in."""
        split = self.split
        first = short(start + self.thread // split.stream)
        keys, values = (self._fetch(cache, at, first, stop - 1) for cache in (k, v))
        scores = b.scratch((split.depth, split.queries))
        with T.unroll(b.int32(split.depth)) as n:
            self._score(scores, n, keys, first + n * split.streams < stop)
        with T.unroll(b.int32(split.queries)) as g:
            self._take(scores, g)
        with T.unroll(b.int32(split.depth)) as n:
            self._add(scores, n, values)

    def _fetch(
        self, source: b.Buffer, at: tuple[b.Expr, ...], first: b.Expr, last: b.Expr
    ) -> b.Buffer:
        """Load ``depth`` keys, or values, of the stream; beyond the last one that again."""
        split = self.split
        each, register_dtype = ln.registers(split.width, split.width, split.dtype)
        held = b.scratch((split.depth, split.pieces * each), register_dtype)
        with T.unroll(b.int32(split.depth)) as n:
            key = short(T.min(first + n * split.streams, last))
            for piece in range(split.pieces):
                where = (source, (*at, key, self.place(piece)[0]))
                ln.load(held, (n, piece * each), where, split.width, split.dtype)
        return held

    def _numbers(self, held: b.Buffer, n: b.Expr) -> b.Buffer:
        """One key or value of those that were fetched."""
        split = self.split
        return ln.unpack(held, split.held, split.dtype, split.width, (n,))

    def _score(self, buffer: b.Buffer, n: b.Expr, keys: b.Buffer, seen: b.Expr) -> None:
        """The scores of one key, which the lanes of its stream add up; minus infinity if unseen."""
        split = self.split
        numbers = self._numbers(keys, n)
        with T.unroll(b.int32(split.queries)) as g:
            own = b.cell(T.float32(0))
            with T.unroll(b.int32(split.held)) as i:
                own.add(self.q[g, i] * numbers[i])
            whole = b.warp_reduce(own.value, b.add, split.stream)
            score = b.let(self.scores.of(whole))
            b.store(buffer, T.Select(seen, score, T.float32(HIDDEN)), (n, g))

    def _take(self, buffer: b.Buffer, g: b.Expr) -> None:
        """Turn the scores of one query into powers, and scale what it has to their maximum."""
        depth, before = b.int32(self.split.depth), b.let(self.top[g])
        with T.unroll(depth) as n:
            b.store(self.top, T.max(self.top[g], buffer[n, g]), (g,))
        base = b.let(self.scores.base(self.top[g]))
        self._scale(g, b.let(self.scores.power(before, base)))
        with T.unroll(depth) as n:
            b.store(buffer, self.scores.power(buffer[n, g], base), (n, g))
            b.store(self.total, self.total[g] + buffer[n, g], (g,))

    def _scale(self, g: b.Expr, factor: b.Expr) -> None:
        """Multiply what a query has."""
        b.store(self.total, self.total[g] * factor, (g,))
        with T.unroll(b.int32(self.split.held)) as i:
            b.store(self.out, self.out[g, i] * factor, (g, i))

    def _add(self, buffer: b.Buffer, n: b.Expr, values: b.Buffer) -> None:
        """Add one value to what every query has."""
        numbers = self._numbers(values, n)
        with T.unroll(b.int32(self.split.queries)) as g, T.unroll(b.int32(self.split.held)) as i:
            b.store(self.out, self.out[g, i] + buffer[n, g] * numbers[i], (g, i))

    def join_streams(self) -> None:
        """Add up what the streams of a warp have; all of them get it."""
        streams = b.WARP // self.split.stream
        if streams == 1:
            return
        with T.serial(b.int32(streams.bit_length() - 1), unroll=False) as step:
            distance = b.let(T.shift_left(b.int32(self.split.stream), step))
            with T.unroll(b.int32(self.split.queries)) as g:
                theirs = b.let(b.warp_across(self.top[g], distance))
                top = b.let(T.max(self.top[g], theirs))
                base = b.let(self.scores.base(top))
                self._scale(g, b.let(self.scores.power(self.top[g], base)))
                b.store(self.top, top, (g,))
                # What the other stream has is scaled already, by as much.
                b.store(self.total, b.warp_sum(self.total[g], distance), (g,))
                with T.unroll(b.int32(self.split.held)) as i:
                    b.store(self.out, b.warp_sum(self.out[g, i], distance), (g, i))

    def finish(
        self, out: b.Buffer, sums: b.Buffer, at: b.Expr, base: b.Expr, share: b.Expr
    ) -> None:
        """Add up what the warps have, and leave it to whoever joins the shares."""
        split = self.split
        warps = _Warps(*(b.shared((WARPS, split.queries, n)) for n in (1, 1, split.head_dim)))
        with b.when(self.thread % b.WARP < split.stream):
            self._put(warps)
        b.barrier()

        def element(index: b.Expr) -> None:
            g = b.let(T.truncdiv(index, b.int32(split.head_dim)))
            i = b.let(index - g * split.head_dim)
            with b.when(self._exists(g)):
                top, total, value = warps.joined(self.scores, g, i)
                target_index = (at, b.index(base + T.Cast("int64", g)), share)
                b.store(out, value, (*target_index, i))
                with b.when(i == 0):
                    b.store(sums, top, (*target_index, 0))
                    b.store(sums, total, (*target_index, 1))

        ln.strided(split.queries * split.head_dim, self.thread, THREADS, element)

    def _put(self, warps: _Warps) -> None:
        """Leave what the first stream of a warp has to the block."""
        split = self.split
        warp, step = self.thread // b.WARP, min(split.width, 4)
        with T.unroll(b.int32(split.queries)) as g:
            with b.when(self.lane == 0):
                b.store(warps.tops, self.top[g], (warp, g, 0))
                b.store(warps.totals, self.total[g], (warp, g, 0))
            for piece in range(split.pieces):
                offset, inside = self.place(piece)
                with b.when(inside) if inside is not None else nullcontext():
                    for part in range(0, split.width, step):
                        start = piece * split.width + part
                        numbers = ln.made(step, partial(self._output, g, start))
                        ln.write(warps.outs, numbers, (warp, g, offset + part), step)

    def _output(self, g: b.Expr, start: int, i: b.Expr) -> b.Expr:
        return self.out[g, start + i]

    def _exists(self, g: b.Expr) -> b.Expr:
        """Return whether a query belongs to the group: the last chunk may hold fewer."""
        split = self.split
        exact = split.chunks * split.queries == split.group
        return tirx.const(True, "bool") if exact else self.query + g < split.group

    def nothing(self, sums: b.Buffer, at: b.Expr, base: b.Expr, share: b.Expr) -> None:
        """Store that a split had no key."""
        mine = T.And(self.thread < self.split.queries, self._exists(self.thread))
        with b.when(mine):
            head = b.index(base + T.Cast("int64", self.thread))
            b.store(sums, T.float32(0), (at, head, share, 1))


class _Warps(NamedTuple):
    """Shared memory of each warp of a block: [warps, queries, 1 or head_dim]."""

    tops: b.Buffer  # the greatest scores
    totals: b.Buffer  # the sums of powers
    outs: b.Buffer  # the results

    def joined(self, scores: Scores, g: b.Expr, i: b.Expr) -> tuple[b.Expr, b.Expr, b.Expr]:
        """The greatest score of all, the sum of powers, and one number of the result."""
        top, total, value = (b.cell() for _ in range(3))
        top.set(T.float32(HIDDEN))
        total.set(T.float32(0))
        value.set(T.float32(0))
        with T.unroll(b.int32(WARPS)) as warp:
            top.set(T.max(top.value, self.tops[warp, g, 0]))
        base = b.let(scores.base(top.value))
        with T.unroll(b.int32(WARPS)) as warp:
            weight = b.let(scores.power(self.tops[warp, g, 0], base))
            total.add(weight * self.totals[warp, g, 0])
            value.add(weight * self.outs[warp, g, i])
        return top.value, total.value, value.value
