"""Rules of the tokens that a model of speech may write next, as transformers has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .memory import Array
from .speech_spec import SpeechSpec

NEVER = -np.inf


class SpeechRules:
    """Rules of the text of one window.

    Args:
        spec: The model's tokens.
        times: Whether tokens of time are written.
    """

    def __init__(self, spec: SpeechSpec, *, times: bool) -> None:
        self._spec = spec
        self._first_time = spec.first_time if times else None
        self._suppressed = np.array(spec.suppressed, np.int64)
        self._suppressed_first = np.array(spec.suppressed_first, np.int64)

    def choose(self, logits: Array, text: Sequence[int]) -> int:
        """The likeliest token behind the tokens of a text that may stand there."""
        scores = logits.astype(np.float32)
        if not text:
            scores[self._suppressed_first] = NEVER
        scores[self._suppressed] = NEVER
        if self._first_time is not None:
            self._time(scores, text, self._first_time)
        return int(scores.argmax())

    def _time(self, scores: Array, text: Sequence[int], first: int) -> None:
        """Hide what would break the order of times: pairs around each part, never decreasing."""
        scores[self._spec.no_timestamps] = NEVER
        times = [token for token in text if token >= first]
        if text and text[-1] >= first:
            if len(text) < 2 or text[-2] >= first:
                scores[first:] = NEVER  # a part begins, with a text
            else:
                scores[: self._spec.end] = NEVER  # another part begins, or nothing follows
                times[-1] -= 1  # at the same time, perhaps
        if times:
            scores[first : times[-1] + 1] = NEVER
        if not text:
            scores[:first] = NEVER
            if self._spec.latest_first is not None:
                scores[first + self._spec.latest_first + 1 :] = NEVER
        if _share(scores[first:]) > scores[:first].max(initial=NEVER):
            scores[:first] = NEVER


def _share(scores: Array) -> float:
    """Return the score of one token as likely as all of these together."""
    highest = float(scores.max(initial=NEVER))
    if not np.isfinite(highest):
        return highest
    return highest + float(np.log(np.exp(scores.astype(np.float64) - highest).sum()))
