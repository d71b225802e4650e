"""Rules of the tokens that may be written next behind a source, as transformers has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .memory import Array
from .writing_spec import WritingSpec

NEVER = -np.inf


class WritingRules:
    """Rules of one text.

    Args:
        spec: The model's tokens.
        longest: The most tokens that the text may have, the one before all included.
    """

    def __init__(self, spec: WritingSpec, longest: int) -> None:
        self._spec, self._longest = spec, longest
        self._ends, self._suppressed, self._suppressed_first = (
            np.array(tokens, np.int64)
            for tokens in (spec.ends, spec.suppressed, spec.suppressed_first)
        )

    def scores(self, logits: Array, text: Sequence[int]) -> Array:
        """The logits of what may stand behind the tokens of a text, the one before all first."""
        spec = self._spec
        scores = logits.astype(np.float32)
        if spec.no_repeat is not None:
            scores[repeating(text, spec.no_repeat)] = NEVER
        if spec.least is not None and len(text) < spec.least:
            scores[self._ends] = NEVER
        if spec.forced_first is not None and len(text) == 1:
            scores = _only(scores, [spec.forced_first])
        if spec.forced_last and len(text) == self._longest - 1:
            scores = _only(scores, spec.forced_last)
        scores[self._suppressed] = NEVER
        if len(text) == 1 + (spec.forced_first is not None):
            scores[self._suppressed_first] = NEVER
        return scores


def repeating(text: Sequence[int], count: int) -> list[int]:
    """The tokens that would make ``count`` tokens in a row which the text has already."""
    last = list(text[len(text) - count + 1 :]) if len(text) >= count else None
    return [
        text[at + count - 1]
        for at in range(len(text) - count + 1)
        if list(text[at : at + count - 1]) == last
    ]


def _only(scores: Array, tokens: Sequence[int]) -> Array:
    """Scores by which one of these tokens is picked, whatever the others were."""
    made = np.full_like(scores, NEVER)
    made[list(tokens)] = 0
    return made
