"""Picking tokens from logits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from .errors import BadUsage, RunError
from .memory import Array

# Picks a token from the logits of all, and the tokens before it.
Choose: TypeAlias = Callable[[Array, Sequence[int]], int]


@dataclass(frozen=True)
class Sampling:
    """Sampling settings; their meanings, and their order, are those of transformers.

    Attributes:
        temperature: What logits are divided by; 0 always takes the likeliest token.
        top_k: Draw from so many of the likeliest tokens, and from those as likely as the last.
        top_p: Draw from the fewest of the likeliest tokens that together have this share.
        min_p: Draw from tokens with at least this share of the likeliest token's probability.
        repetition_penalty: Logits of tokens that are in the text already are divided by it where
            positive, and multiplied where negative (arXiv:1909.05858).
        seed: Makes drawing repeatable.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int | None = None

    def check(self) -> None:
        """Raise ``BadUsage`` for what is out of range."""
        rules = (
            (0 <= self.temperature < math.inf, f"temperature {self.temperature} is not from 0 up"),
            (self.top_k is None or self.top_k >= 1, "top-k counts tokens from 1 up"),
            (self.top_p is None or 0 < self.top_p <= 1, "top-p is a share from 0 to 1"),
            (self.min_p is None or 0 <= self.min_p <= 1, "min-p is a share from 0 to 1"),
            (0 < self.repetition_penalty < math.inf, "repetition-penalty is a number above 0"),
            (self.seed is None or self.seed >= 0, f"seed {self.seed} is negative"),
        )
        if wrong := [what for good, what in rules if not good]:
            raise BadUsage("; ".join(wrong))


NOT_FINITE = "the model's logits are not finite numbers"
BARRED = "no token may be written here: a schema, or the model's list, bars each"


class TokenSampler:
    """Sampler of tokens, one after the other."""

    def __init__(self, sampling: Sampling) -> None:
        sampling.check()
        self.sampling = sampling

    @cached_property
    def _random(self) -> np.random.Generator:
        """The source of random numbers: NumPy's, which it imports when it is first asked for."""
        return np.random.default_rng(self.sampling.seed)

    def __call__(self, logits: Array, before: Sequence[int]) -> int:
        """Pick a token from the logits of all, and the tokens before it."""
        return self._pick(penalised(logits, before, self.sampling.repetition_penalty))

    def pick_among(self, allowed: Array, logits: Array, before: Sequence[int]) -> int:
        """Pick one of the tokens ``allowed``, as if there were no others."""
        moved = penalised(logits, before, self.sampling.repetition_penalty)
        return int(allowed[self._pick(moved[allowed])])

    def _pick(self, logits: Array) -> int:
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            raise RunError(BARRED if logits[best] == -math.inf else NOT_FINITE)
        if self.sampling.temperature == 0:
            return best
        tokens, shares = distribution(logits, self.sampling)
        draw = _rounded(self._random.random())
        index = int(np.searchsorted(shares.cumsum(), draw, side="right"))
        return int(tokens[min(index, tokens.size - 1)])

    def draws(self, count: int) -> Array:
        """The next random numbers, float32 ``[count]`` from 0 up to but not 1; none is used up."""
        if self.sampling.temperature == 0:
            return np.zeros(count, np.float32)
        return _rounded(copy.deepcopy(self._random).random(count))

    def skip(self) -> None:
        """Use up the next random number: somebody else has picked a token with it."""
        if self.sampling.temperature:
            self._random.random()


def _rounded(draws: float | Array) -> Array:
    """Random numbers as float32, which devices have, and still below 1."""
    return np.minimum(np.asarray(draws, np.float32), np.nextafter(np.float32(1), np.float32(0)))


def distribution(logits: Array, sampling: Sampling) -> tuple[Array, Array]:
    """Return the tokens that one is drawn from, likeliest first, and their probabilities.

    The logits are penalised already, and the temperature is above 0.
    """
    tokens = _likeliest(logits, sampling.top_k)
    shares = _softmax(logits[tokens], sampling.temperature)
    if sampling.top_p is not None and sampling.top_p < 1:
        shares = shares[: int(np.searchsorted(shares.cumsum(), sampling.top_p)) + 1]
    if sampling.min_p is not None:
        shares = shares[shares >= sampling.min_p * shares[0]]
    return tokens[: shares.size], shares / shares.sum()


def _likeliest(logits: Array, count: int | None) -> Array:
    """The ``count`` likeliest tokens, likeliest first, and those as likely as the last of them."""
    if count is None or count >= logits.size:
        return _falling(logits)
    least = np.partition(logits, -count)[-count]
    kept = np.flatnonzero(logits >= least)
    ordered: Array = kept[np.argsort(-logits[kept], kind="stable")]
    return ordered


def _falling(logits: Array) -> Array:
    """The order of logits, the largest first; of equals the first is first.

    A stable sort of a large vocabulary takes as long as a step of a model. So float32 numbers are
    sorted as integers that compare as they do, with the indices behind them.
    """
    if logits.dtype != np.float32:
        return np.argsort(-logits, kind="stable")
    bits = (logits + np.float32(0)).view(np.int32)  # of zeros, without their signs
    rising = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    keys: Array = ((~rising).astype(np.int64) << 32) | np.arange(logits.size)
    keys.sort()
    return keys & 0xFFFFFFFF


def penalised(logits: Array, before: Sequence[int], penalty: float) -> Array:
    """The logits, where those of the tokens ``before`` are moved away from them by the penalty."""
    if penalty == 1 or not len(before):
        return logits
    seen = np.unique(np.asarray(before))
    result = logits.astype(np.float64)
    known = result[seen]
    with np.errstate(over="ignore"):  # what is infinite then is refused where it is picked from
        result[seen] = np.where(known > 0, known / penalty, known * penalty)
    return result


def _softmax(logits: Array, temperature: float) -> Array:
    """Probabilities of logits that are sorted, the largest first."""
    with np.errstate(over="ignore"):  # minus infinity is a share of 0
        scaled = np.exp((logits.astype(np.float64) - float(logits[0])) / temperature)
    shares: Array = scaled / scaled.sum()
    return shares
