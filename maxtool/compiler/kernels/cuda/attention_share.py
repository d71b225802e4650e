"""A block that attends to a share of the keys of one token: what it holds, and what it does.

The lanes of a stream hold one key together, 16 bytes each; a stream takes ``DEPTH`` keys at a time,
whose loads, and those of their values, are all under way before the first is used: 128 threads have
up to 16 KiB in flight. All queries of a group that fit in registers are multiplied with a key once
it is there. Sums are float32, queries and probabilities are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import lanes as ln
from maxtool.compiler.kernels.cuda.attention_plan import THREADS, WARPS, Split
from maxtool.compiler.kernels.cuda.scores import HIDDEN, Scores

# From a head and the first of some neighbours in it to those, in float32.
Read: TypeAlias = Callable[[b.Expr, b.Expr], Sequence[b.Expr]]


def short(value: b.Expr) -> b.Expr:
    """The number of a key, computed once: positions are int32, and an int64 takes two registers."""
    return b.let(T.Cast("int32", value), 1, "int32")


class Share:
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

    def start(self, read: Read, base: b.Expr) -> None:
        """Load the queries by their heads; one beyond the group repeats its last."""
        split = self.split
        for g in range(split.queries):
            last = split.group - 1 - g
            head = base + g if split.chunks == 1 else base + b.least(last - self.query, 0) + g
            b.store(self.top, T.float32(HIDDEN), (g,), 1)
            b.store(self.total, T.float32(0), (g,), 1)
            for piece in range(split.pieces):
                place, inside = self.place(piece)
                for lane, number in enumerate(read(head, place)):
                    value = number if inside is None else T.Select(inside, number, T.float32(0))
                    b.store(self.q, value, (g, piece * split.lanes + lane), 1)
                    b.store(self.out, T.float32(0), (g, piece * split.lanes + lane), 1)

    def place(self, piece: int) -> tuple[b.Expr, b.Expr | None]:
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
            short(start + self.thread // split.stream + n * split.streams)
            for n in range(split.depth)
        ]
        places = [short(T.min(key, stop - 1)) for key in mine]
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
            ln.fetch(source, (*at, self.place(piece)[0]), split.lanes, split.dtype)
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
        place, inside = self.place(piece)

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
