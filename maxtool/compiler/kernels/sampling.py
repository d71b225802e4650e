"""Drawing a token from the logits of one row: the same steps for every target.

The meanings, and their order, are those of ``maxtool.runtime.loader.sampling``, which draws on the
host. Nothing is sorted: where a sorted list would be cut is found by halving the range between two
logits, each time with one sweep over the row. Logits and shares are float32, where the host uses
float64. So a token differs from the host's only where rounding decides: where penalised logits come
to lie beside others, and where a share or the drawn number is within some millionths of the edge
between two tokens. Sums are added in one order, so the same row gives the same token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels import builder as b
from maxtool.compiler.kernels.ordering import COMBINE, Combine, highest

# The numbers in ``settings``. Off are a top_k of 0, a top_p of 1, a min_p of 0, a penalty of 1.
TEMPERATURE, TOP_K, TOP_P, MIN_P, PENALTY = range(5)

# How often a range is halved by value before it is halved among the floats that are in it.
BY_VALUE = 24
# How far below the best logit, in temperatures, the first look goes.
FIRST_LOOK = 32.0
# Shares below this part of the largest are taken as 0: the least normal float32.
LEAST_SHARE = 2.0**-126
_SIGN, _INFINITY = 0x8000_0000, float("inf")


class Team(Protocol):
    """The threads that work on one row; one, or many."""

    def each(self, n: b.Index, body: Callable[[b.Expr], None]) -> None:
        """Run ``body(k)`` for every ``k`` below ``n``, shared out to the threads."""

    def reduce(self, value: b.Expr, combine: Combine, kind: str = "float32") -> b.Expr:
        """Combine a value of each thread; every one of them gets the result."""

    def barrier(self) -> None:
        """Wait for all threads."""


@dataclass(frozen=True, slots=True)
class Logits:
    """The logits of a row, penalised, as its team reads them.

    Attributes:
        team: The threads.
        vocab: How many there are.
        read: One of them.
    """

    team: Team
    vocab: b.Expr
    read: Callable[[b.Expr], b.Expr]

    def fold(self, term: Callable[[b.Expr, b.Expr], b.Expr], name: str, kind: str) -> b.Expr:
        """``term(k, logit)`` of every place and logit, combined as ``COMBINE[name]`` does."""
        combine, neutral = COMBINE[name]
        own = b.scratch((1,), kind)
        b.store(own, neutral(kind), (0,), 1)

        def take(k: b.Expr) -> None:
            value = b.let(term(k, b.let(self.read(k))), 1, kind)
            b.store(own, combine(own[0], value), (0,), 1)

        self.team.barrier()  # what is shared may still be read from the fold before
        self.team.each(self.vocab, take)
        return b.let(self.team.reduce(own[0], combine, kind), 1, kind)

    def place(
        self,
        low: b.Expr,
        high: b.Expr,
        counts: Callable[[b.Expr], b.Expr],
        number: b.Expr,
    ) -> b.Expr:
        """Where the ``number``-th is, from 0, of those from ``low`` up to ``high`` that count."""
        one, none, nowhere = b.integer(1), b.integer(0), highest("int64")

        def chosen(logit: b.Expr, value: b.Expr, otherwise: b.Expr) -> b.Expr:
            held = b.scratch((1,), "int64")
            b.store(held, otherwise, (0,), 1)
            with b.when(tirx.all(logit >= low, logit < high)):
                b.store(held, T.Select(counts(logit), value, otherwise), (0,), 1)
            return held[0]

        first = self.fold(lambda k, logit: chosen(logit, k, nowhere), "min", "int64")
        left, right = b.scratch((1,), "int64"), b.scratch((1,), "int64")
        b.store(left, first, (0,), 1)
        b.store(right, T.Select(number > 0, self.vocab, first + 1), (0,), 1)
        with T.While(right[0] - left[0] > 1):
            middle = b.index(b.quotient(left[0] + right[0], 2))

            def before(k: b.Expr, logit: b.Expr) -> b.Expr:
                return chosen(logit, T.Select(k < middle, one, none), none)

            b.either(
                self.fold(before, "sum", "int64") > number,
                lambda: b.store(right, middle, (0,), 1),
                lambda: b.store(left, middle, (0,), 1),
            )
        return b.index(left[0])


@dataclass(frozen=True, slots=True)
class Shares:
    """The probabilities of a row, as parts of that of the best token.

    Attributes:
        logits: The logits.
        best: The greatest of them, a finite number.
        temperature: Above 0.
    """

    logits: Logits
    best: b.Expr
    temperature: b.Expr

    def of(self, logit: b.Expr, least: b.Expr) -> b.Expr:
        """The probability of a token of that logit; 0 if it is below the least that counts."""
        value = b.let(T.exp((logit - self.best) / self.temperature))
        return b.let(T.Select(value >= least, value, T.float32(0)))

    def totals(self, low: b.Expr, least: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Number and sum (float64) of those that count and whose logit is ``low`` or greater."""
        logits = self.logits
        number, total = b.scratch((1,), "int64"), b.scratch((1,), "float64")
        b.store(number, b.integer(0), (0,), 1)
        b.store(total, T.float64(0), (0,), 1)

        def take(k: b.Expr) -> None:
            logit = b.let(logits.read(k))
            with b.when(logit >= low):
                share = self.of(logit, least)
                b.store(total, total[0] + _wide(share), (0,), 1)
                with b.when(share > T.float32(0)):
                    b.store(number, number[0] + b.integer(1), (0,), 1)

        logits.team.barrier()
        logits.team.each(logits.vocab, take)
        counted = b.index(logits.team.reduce(number[0], b.add, "int64"))
        summed = logits.team.reduce(total[0], b.add, "float64")
        return counted, b.let(summed, 1, "float64")


class Edge:
    """The range of logits where a list of tokens, the likeliest first, is to be cut.

    At its lower end what is looked for holds, at its upper end it does not. It is halved until all
    tokens in it are equally likely.

    Attributes:
        low: The key of the lower end, uint32 ``[1]``.
        high: That of the upper end.
        below: How many tokens there are from the lower end up.
        above: How many from the upper end up.
        mass: Their shares together, float64 ``[1]``.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._steps = b.scratch((1,), "int32")
        self.low, self.high = b.scratch((1,), "uint32"), b.scratch((1,), "uint32")
        self.below, self.above = b.scratch((1,), "int64"), b.scratch((1,), "int64")
        self.mass = b.scratch((1,), "float64")

    @property
    def equal(self) -> b.Expr:
        """How many tokens are in the range."""
        return self.below[0] - self.above[0]

    def find(
        self,
        floor: b.Expr,
        least: b.Expr,
        begin: Callable[[b.Expr], None],
        holds: Callable[[b.Expr, b.Expr], b.Expr],
        wanted: b.Expr,
    ) -> None:
        """Halve the range from ``floor`` to the best logit.

        Args:
            floor: Where what is looked for holds.
            least: The least share that counts.
            begin: Told all shares from the floor up, together, before anything else.
            holds: From number and shares of the tokens above a logit, whether it holds there.
            wanted: A number of tokens from the lower end up that is enough, too.
        """
        b.store(self.low, _key(floor), (0,), 1)
        b.store(self.high, _key(self._shares.best) + _word(1), (0,), 1)
        b.store(self.below, b.integer(0), (0,), 1)
        b.store(self.above, b.integer(0), (0,), 1)
        b.store(self.mass, T.float64(0), (0,), 1)
        b.store(self._steps, b.int32(0), (0,), 1)
        starts = self._steps[0] == 0
        apart = tirx.all(self.high[0] - self.low[0] > _word(1), self.equal > 1)
        with T.While(tirx.any(starts, tirx.all(apart, self.below[0] != wanted))):
            middle = b.let(T.Select(starts, self.low[0], self._middle()), 1, "uint32")
            number, total = self._shares.totals(b.let(_logit(middle)), least)
            with b.when(starts):
                begin(total)
            b.either(
                tirx.any(starts, holds(number, total)),
                lambda: self._raise(middle, number),
                lambda: self._lower(middle, number, total),
            )
            b.store(self._steps, self._steps[0] + b.int32(1), (0,), 1)

    def _raise(self, middle: b.Expr, number: b.Expr) -> None:
        b.store(self.low, middle, (0,), 1)
        b.store(self.below, number, (0,), 1)

    def _lower(self, middle: b.Expr, number: b.Expr, total: b.Expr) -> None:
        b.store(self.high, middle, (0,), 1)
        b.store(self.above, number, (0,), 1)
        b.store(self.mass, total, (0,), 1)

    def _middle(self) -> b.Expr:
        """The key of a logit between the ends: by value first, later by the floats in between."""
        shares, half, steps = self._shares, T.float32(0.5), self._steps[0]
        least = b.let(_logit(self.low[0]))
        first = b.let(shares.best - T.float32(FIRST_LOOK) * shares.temperature)
        mean = b.let(least * half + _logit(self.high[0] - _word(1)) * half)
        by_value = b.let(_key(b.let(T.Select(steps == 1, first, mean))), 1, "uint32")
        counted = b.let(self.low[0] + (self.high[0] - self.low[0]) / _word(2), 1, "uint32")
        known = tirx.any(steps == 1, least > T.float32(-_INFINITY))
        chosen = T.Select(tirx.all(steps < BY_VALUE, known), by_value, counted)
        return T.min(T.max(chosen, self.low[0] + _word(1)), self.high[0] - _word(1))


class Arguments:
    """The parameters of a kernel that draws a token for each row of logits.

    They are seen[rows, vocab] int8, which is written in place: 1 for each token that was in the
    text; logits[rows, vocab] float32; tokens[rows, count] int64, which are marked as seen first;
    draws[context] float32 and position[1] int32: the number at that position is used;
    settings[5] float32; token[rows, 1] int64, the result.
    """

    def __init__(self, made: b.Kernel) -> None:
        self.rows, self.vocab = made.dim("rows"), made.dim("vocab")
        self._count, self._context = made.dim("count"), made.dim("context")
        self._seen = made.argument("seen", (self.rows, self.vocab), "int8")
        self._logits = made.argument("logits", (self.rows, self.vocab))
        self._tokens = made.argument("tokens", (self.rows, self._count), "int64")
        self._draws = made.argument("draws", (self._context,))
        self._position = made.argument("position", (1,), "int32")
        self._settings = made.argument("settings", (PENALTY + 1,))
        self.token = made.argument("token", (self.rows, 1), "int64")

    def drawn(self, i: b.Expr, team: Team) -> b.Expr:
        """Mark the tokens of a row and draw the next; -1 where the logits are not finite."""
        seen = tirx.const(1, "int8")

        def mark(k: b.Expr) -> None:
            token = b.index(self._tokens[i, k])
            with b.when(tirx.all(token >= 0, token < self.vocab)):
                b.store(self._seen, seen, (i, token), 1)

        team.each(self._count, mark)
        team.barrier()
        penalty = b.let(self._settings[PENALTY])

        def read(k: b.Expr) -> b.Expr:
            logit = b.let(self._logits[i, k])
            moved = T.Select(logit > T.float32(0), logit / penalty, logit * penalty)
            return T.if_then_else(self._seen[i, k] == seen, moved, logit)

        number = b.let(self._draws[b.clamped(self._position[0], self._context)])
        return draw(Logits(team, self.vocab, read), number, self._settings)


def draw(logits: Logits, number: b.Expr, settings: b.Buffer) -> b.Expr:
    """The place of the token that is drawn; -1 where the greatest logit is no finite number.

    Args:
        logits: What it is drawn from.
        number: From 0 up to 1.
        settings: float32, as ``TEMPERATURE`` and so on say.
    """
    chosen = b.scratch((1,), "int64")
    b.store(chosen, b.integer(-1), (0,), 1)
    best = logits.fold(lambda _, logit: logit, "max", "float32")
    temperature = b.let(settings[TEMPERATURE])
    with b.when(tirx.all(best > T.float32(-_INFINITY), best < T.float32(_INFINITY))):
        # Where nothing is drawn at random, shares say nothing, and all of them count.
        divisor = b.let(T.Select(temperature > T.float32(0), temperature, T.float32(1)))
        shares = Shares(logits, best, divisor)
        edge, nth, least = Edge(shares), b.scratch((1,), "int64"), b.scratch((1,))
        b.store(edge.low, _key(best), (0,), 1)
        b.store(edge.high, edge.low[0] + _word(1), (0,), 1)
        b.store(nth, b.integer(0), (0,), 1)
        b.store(least, T.float32(LEAST_SHARE), (0,), 1)
        with b.when(temperature > T.float32(0)):
            _draw(edge, shares, nth, least, number, settings)
        low, high = b.let(_logit(edge.low[0])), b.let(_logit(edge.high[0]))

        def counts(logit: b.Expr) -> b.Expr:
            return shares.of(logit, least[0]) > T.float32(0)

        b.store(chosen, logits.place(low, high, counts, nth[0]), (0,), 1)
    return chosen[0]


def _draw(
    edge: Edge,
    shares: Shares,
    nth: b.Buffer,
    least: b.Buffer,
    number: b.Expr,
    settings: b.Buffer,
) -> None:
    """Find the tokens among which the drawn one is, which of them it is, and what counts.

    The list of tokens is cut to a number of them (top-k), then to a share (top-p), and then where
    the drawn number is: three times the same, so that it is one loop.
    """
    count = b.index(T.Cast("int64", settings[TOP_K]))
    share, part_of_best = b.let(settings[TOP_P]), b.let(settings[MIN_P])
    floor, target = b.scratch((1,)), b.scratch((1,), "float64")
    surplus = b.scratch((1,), "int64")  # tokens at the floor that are cut off
    b.store(floor, T.float32(-_INFINITY), (0,), 1)
    b.store(surplus, b.integer(0), (0,), 1)
    with T.serial(b.integer(3)) as cut:
        by_count, by_share, last = cut == 0, cut == 1, cut == 2
        limits = tirx.all(count > 0, count < shares.logits.vocab)
        asked = tirx.any(tirx.all(by_count, limits), tirx.all(by_share, share < T.float32(1)), last)
        with b.when(asked):
            raised = tirx.all(last, part_of_best > least[0])
            b.store(least, T.Select(raised, part_of_best, least[0]), (0,), 1)

            def begin(total: b.Expr) -> None:
                cut_off = T.Cast("float64", surplus[0]) * _wide(shares.of(floor[0], least[0]))
                part = _wide(T.Select(last, number, share))
                b.store(target, part * (total - cut_off), (0,), 1)

            def holds(found: b.Expr, total: b.Expr) -> b.Expr:
                enough = T.Select(last, total > target[0], total >= target[0])
                return T.Select(by_count, found >= count, enough)

            edge.find(floor[0], least[0], begin, holds, T.Select(by_count, count, b.integer(-1)))
            end = b.let(_logit(edge.low[0]))
            each = _wide(shares.of(end, least[0]))
            several = edge.equal > 1
            passed = b.let((target[0] - edge.mass[0]) / each, 1, "float64")
            with b.when(tirx.all(by_share, several)):
                needed = b.greatest(T.Cast("int64", T.ceil(passed)), 1)
                b.store(surplus, b.greatest(edge.equal - needed, 0), (0,), 1)
            with b.when(tirx.all(last, several)):
                kept = edge.equal - T.Select(end == floor[0], surplus[0], b.integer(0))
                within = b.least(T.Cast("int64", passed), kept - 1)
                b.store(nth, b.greatest(within, 0), (0,), 1)
            b.store(floor, end, (0,), 1)


def _wide(value: b.Expr) -> b.Expr:
    return T.Cast("float64", value)


def _word(value: int) -> b.Expr:
    return tirx.const(value, "uint32")


def _key(logit: b.Expr) -> b.Expr:
    """A number that is ordered as the logit is; both zeros have one."""
    same = b.let(T.Select(logit == T.float32(0), T.float32(0), logit))
    bits = b.let(T.reinterpret("uint32", same), 1, "uint32")
    return T.Select(bits < _word(_SIGN), bits + _word(_SIGN), T.bitwise_not(bits))


def _logit(key: b.Expr) -> b.Expr:
    """The logit of a key."""
    bits = T.Select(key < _word(_SIGN), T.bitwise_not(key), key - _word(_SIGN))
    return T.reinterpret("float32", bits)
