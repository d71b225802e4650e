"""The logits of a row while its threads look for where a sorted list of its tokens would be cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Element, Emit, Load, RowThreads
from maxtool.compiler.kernels.element_order import COMBINE, Combine, highest

# How often a range is halved by value before it is halved among the floats that are in it.
BY_VALUE = 24
# How far below the best logit, in temperatures, the first look goes.
FIRST_LOOK = 32.0
INFINITY = float("inf")
_SIGN = 0x8000_0000


@dataclass(frozen=True, slots=True)
class Logits:
    """The logits of a row, penalised, as its threads read them."""

    threads: RowThreads
    vocab: b.Expr
    kinds: tuple[str, ...]  # the types of what is in memory for each of them
    load: Load  # that, by its place
    logit: Callable[..., b.Expr]  # the penalised logit, from that

    def each(self, body: Callable[[b.Expr, b.Expr], None]) -> None:
        """Run ``body(k, logit)`` for every place."""

        def take(k: b.Expr, *loaded: b.Expr) -> None:
            body(k, b.let(self.logit(*loaded)))

        self.threads.barrier()  # what is shared may still be read from the sweep before
        self.threads.stream(self.vocab, self.kinds, self.load, take)

    def fold(self, term: Callable[[b.Expr, b.Expr], b.Expr], name: str, dtype: str) -> b.Expr:
        """``term(k, logit)`` of every place and logit, combined as ``COMBINE[name]`` does."""
        combine, neutral = COMBINE[name]
        own = b.cell(neutral(dtype))

        def take(k: b.Expr, logit: b.Expr) -> None:
            value = b.let(term(k, logit))
            own.set(combine(own.value, value))

        self.each(take)
        return b.let(self.threads.reduce(own.value, combine, dtype))

    def place(self, low: b.Expr, high: b.Expr, counts: Element, number: b.Expr) -> b.Expr:
        """Return the position of the ``number``-th counted element, from 0, in the range."""
        unit, none, nowhere = b.integer(1), b.integer(0), highest("int64")

        def chosen(logit: b.Expr, value: b.Expr, otherwise: b.Expr) -> b.Expr:
            held = b.cell(otherwise)
            with b.when(tirx.all(logit >= low, logit < high)):
                held.set(T.Select(counts(logit), value, otherwise))
            return held.value

        first = self.fold(lambda k, logit: chosen(logit, k, nowhere), "min", "int64")
        left, right = b.cell(first), b.cell(T.Select(number > 0, self.vocab, first + 1))
        with T.While(right.value - left.value > 1):
            middle = b.index(b.quotient(left.value + right.value, 2))

            def before(k: b.Expr, logit: b.Expr) -> b.Expr:
                return chosen(logit, T.Select(k < middle, unit, none), none)

            b.either(
                self.fold(before, "sum", "int64") > number,
                lambda: right.set(middle),
                lambda: left.set(middle),
            )
        return b.index(left.value)


@dataclass(frozen=True, slots=True)
class TokenProbabilities:
    """The probabilities of a row, as parts of that of the best token."""

    logits: Logits
    best: b.Expr  # the greatest of them, a finite number
    temperature: b.Expr  # above 0

    def of(self, logit: b.Expr, least: b.Expr) -> b.Expr:
        """The probability of a token of that logit; 0 if it is below the least that counts."""
        value = b.let(T.exp((logit - self.best) / self.temperature))
        return b.let(T.Select(value >= least, value, T.float32(0)))

    def totals(self, low: b.Expr, least: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Number and sum (float64) of those that count and whose logit is ``low`` or greater."""
        logits = self.logits
        number, total = b.cell(b.integer(0)), b.cell(T.float64(0))

        def take(_: b.Expr, logit: b.Expr) -> None:
            with b.when(logit >= low):
                share = self.of(logit, least)
                total.add(wide(share))
                with b.when(share > T.float32(0)):
                    number.add(b.integer(1))

        logits.each(take)
        counted = b.index(logits.threads.reduce(number.value, b.add, "int64"))
        summed = logits.threads.reduce(total.value, b.add, "float64")
        return counted, b.let(summed)


class Threshold:
    """The range of logits where a list of tokens, the likeliest first, is to be cut.

    At its lower end what is looked for holds, at its upper end it does not. It is halved until all
    tokens in it are equally likely. ``low`` and ``high`` are the keys of its ends, ``below`` and
    ``above`` how many tokens there are from each up, and ``mass`` the shares of the latter.
    """

    def __init__(self, shares: TokenProbabilities) -> None:
        self._shares = shares
        self._steps = b.scratch((1,), "int32")
        self.low, self.high = b.scratch((1,), "uint32"), b.scratch((1,), "uint32")
        self.below, self.above = b.scratch((1,), "int64"), b.scratch((1,), "int64")
        self.mass = b.scratch((1,), "float64")

    @property
    def equal(self) -> b.Expr:
        """Return the number of tokens in the range."""
        return self.below[0] - self.above[0]

    def find(
        self, floor: b.Expr, least: b.Expr, begin: Emit, holds: Combine, wanted: b.Expr
    ) -> None:
        """Halve the range from ``floor``, where what is looked for holds, to the best logit.

        ``least`` is the least share that counts. ``begin`` is told all shares from the floor up,
        together, before anything else; ``holds`` says, from number and shares of the tokens above a
        logit, whether it holds there. ``wanted`` tokens from the lower end up are enough, too.
        """
        b.store(self.low, key_of(floor), (0,))
        b.store(self.high, key_of(self._shares.best) + word(1), (0,))
        b.store(self.below, b.integer(0), (0,))
        b.store(self.above, b.integer(0), (0,))
        b.store(self.mass, T.float64(0), (0,))
        b.store(self._steps, b.int32(0), (0,))
        starts = self._steps[0] == 0
        apart = tirx.all(self.high[0] - self.low[0] > word(1), self.equal > 1)
        with T.While(tirx.any(starts, tirx.all(apart, self.below[0] != wanted))):
            middle = b.let(T.Select(starts, self.low[0], self._middle()))
            number, total = self._shares.totals(b.let(logit_of(middle)), least)
            with b.when(starts):
                begin(total)
            b.either(
                tirx.any(starts, holds(number, total)),
                lambda: self._raise(middle, number),
                lambda: self._lower(middle, number, total),
            )
            b.store(self._steps, self._steps[0] + b.int32(1), (0,))

    def _raise(self, middle: b.Expr, number: b.Expr) -> None:
        b.store(self.low, middle, (0,))
        b.store(self.below, number, (0,))

    def _lower(self, middle: b.Expr, number: b.Expr, total: b.Expr) -> None:
        b.store(self.high, middle, (0,))
        b.store(self.above, number, (0,))
        b.store(self.mass, total, (0,))

    def _middle(self) -> b.Expr:
        """The key of a logit between the ends: by value first, later by the floats in between."""
        shares, half, steps = self._shares, T.float32(0.5), self._steps[0]
        least = b.let(logit_of(self.low[0]))
        first = b.let(shares.best - T.float32(FIRST_LOOK) * shares.temperature)
        mean = b.let(least * half + logit_of(self.high[0] - word(1)) * half)
        by_value = b.let(key_of(b.let(T.Select(steps == 1, first, mean))))
        counted = b.let(self.low[0] + (self.high[0] - self.low[0]) / word(2))
        known = tirx.any(steps == 1, least > T.float32(-INFINITY))
        chosen = T.Select(tirx.all(steps < BY_VALUE, known), by_value, counted)
        return T.min(T.max(chosen, self.low[0] + word(1)), self.high[0] - word(1))


def wide(value: b.Expr) -> b.Expr:
    """A float32 as float64."""
    return T.Cast("float64", value)


def word(value: int) -> b.Expr:
    """A uint32 constant."""
    return tirx.const(value, "uint32")


def key_of(logit: b.Expr) -> b.Expr:
    """A number that is ordered as the logit is; both zeros have one."""
    same = b.let(T.Select(logit == T.float32(0), T.float32(0), logit))
    bits = b.let(T.reinterpret("uint32", same))
    return T.Select(bits < word(_SIGN), bits + word(_SIGN), T.bitwise_not(bits))


def logit_of(key: b.Expr) -> b.Expr:
    """The logit of a key."""
    bits = T.Select(key < word(_SIGN), T.bitwise_not(key), key - word(_SIGN))
    return T.reinterpret("float32", bits)
