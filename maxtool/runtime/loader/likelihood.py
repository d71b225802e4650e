"""Probabilities of the tokens that are picked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .memory import Array
from .sampling import Choose


class LikelihoodSampler:
    """Picker of tokens as another one picks them, that notes how likely they were.

    Attributes:
        logprobs: The natural logarithm of the probability of each token that was picked, an end of
            text included. It is the model's own, before temperature, penalty and limits, and
            among all tokens, also where a schema allows few.
    """

    def __init__(self, choose: Choose) -> None:
        """Note the probabilities of what ``choose`` picks."""
        self.logprobs: list[float] = []
        self._choose = choose

    def __call__(self, logits: Array, before: Sequence[int]) -> int:
        """Pick a token from the logits of all, and the tokens before it."""
        token = self._choose(logits, before)
        self.logprobs.append(float(log_softmax(logits)[token]))
        return token


def log_softmax(logits: Array) -> Array:
    """Logarithms of the probabilities, float64 ``[vocabulary]``."""
    moved = logits.astype(np.float64) - float(logits.max())
    result: Array = moved - np.log(np.exp(moved).sum())
    return result
