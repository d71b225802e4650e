"""Scores of attention: what becomes of a product of query and key, and powers of scores.

Scores are kept as exponents of two, scaled by ``log2(e)`` with everything else: a power of two is
one instruction of a GPU and a few that guard its range, a power of e is a product more. Where
numbers are added to scores they are not scaled before, lest the lowest float32, with which some
hide keys, become infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e, log2

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b

HIDDEN = float("-inf")  # the score of a key that is not seen; its power is 0


@dataclass(frozen=True, slots=True)
class Scores:
    """Transformation of the product of a query and a key into a score."""

    scale: float  # what it is multiplied by
    window: int | None = None  # keys a query sees at most, its own included; None for all
    # Bound of the scores, which become ``softcap * tanh(score / softcap)``.
    softcap: float | None = None
    added: bool = False  # whether something is added to scores
    kind: str = "float32"  # the type they are computed in
    causal: bool = True  # whether a query sees none of the keys behind its own
    chunked: bool = False  # whether those keys are the ones of its chunk of ``window``

    def number(self, value: float) -> b.Expr:
        """A constant of the type of scores."""
        return tirx.const(value, self.kind)

    def of(self, product: b.Expr) -> b.Expr:
        """The score of a product."""
        unit = 1.0 if self.added else log2(e)
        if self.softcap is None:
            return product * self.number(self.scale * unit)
        capped = T.tanh(product * self.number(self.scale / self.softcap))
        return capped * self.number(self.softcap * unit)

    def power(self, score: b.Expr, base: b.Expr) -> b.Expr:
        """The power of a score, relative to what ``base`` made of the greatest."""
        exponent = score - base
        return T.exp2(exponent * self.number(log2(e)) if self.added else exponent)

    def base(self, top: b.Expr) -> b.Expr:
        """Return the reference of scores: the greatest, or 0 as long as no key was seen."""
        return T.Select(top == self.number(HIDDEN), self.number(0), top)

    def with_sink(self, total: b.Expr, top: b.Expr, sink: b.Expr) -> b.Expr:
        """A sum of powers with that of one more key, whose score is ``sink`` and value zero.

        Where that outweighs the others by more than float32 holds, the sum is infinite, and what
        is divided by it 0, as it should be.
        """
        return total + self.power(sink * self.number(log2(e)), self.base(top))

    def inverse(self, total: b.Expr) -> b.Expr:
        """The inverse of a sum of powers; 1 where no key was seen."""
        return self.number(1) / T.Select(total == self.number(0), self.number(1), total)

    def last(self, query: b.Expr, queries: b.Expr) -> b.Expr:
        """The last query whose key one of ``queries`` sees."""
        return query if self.causal else queries - 1

    def first(self, query: b.Expr) -> b.Expr:
        """The first key that the query at a position sees."""
        reach = self.reach(query)
        return b.integer(0) if reach is None else b.greatest(query - reach, 0)

    def reach(self, query: b.Expr) -> b.Expr | None:
        """The most keys that the query at a position sees before its own; None for all."""
        if self.window is None:
            return None
        if self.chunked:
            return b.remainder(query, self.window)
        return b.integer(self.window - 1)
