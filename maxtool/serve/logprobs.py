"""Probabilities of tokens, noted while they are picked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from maxtool.runtime.loader import Model
from maxtool.runtime.loader.likelihood import log_softmax
from maxtool.runtime.loader.memory import Array
from maxtool.runtime.loader.sampling import Choose

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Likely(NamedTuple):
    """A token, its text, and the logarithm of the probability that the model gives it."""

    text: str
    logprob: float

    def content(self) -> dict[str, object]:
        """The JSON of chats; a token that is only a part of a character has no bytes of its own."""
        data = None if REPLACEMENT in self.text else list(self.text.encode())
        return {"token": self.text, "logprob": self.logprob, "bytes": data}


class Picked(NamedTuple):
    """The token that was picked, and the likeliest ones in its place."""

    token: Likely
    top: Sequence[Likely]


class NotingSampler:
    """Picker of tokens as another one picks them, that notes how likely they were.

    The probabilities are the model's own, before temperature, penalties and limits, and among all
    tokens, also where a schema allows few.

    Attributes:
        picked: What was picked so far, an end of text included.
    """

    def __init__(self, choose: Choose, texts: TokenTexts, top: int) -> None:
        """Note what ``choose`` picks, and ``top`` tokens in its place."""
        self.picked: list[Picked] = []
        self._choose, self._texts, self._top = choose, texts, top

    def __call__(self, logits: Array, before: Sequence[int]) -> int:
        """Pick a token from the logits of all, and the tokens before it."""
        token = self._choose(logits, before)
        shares = log_softmax(logits)
        top = np.argsort(-logits, kind="stable")[: self._top].tolist() if self._top else []
        self.picked.append(
            Picked(self._likely(token, shares), [self._likely(t, shares) for t in top])
        )
        return token

    def _likely(self, token: int, shares: Array) -> Likely:
        return Likely(self._texts(token), max(float(shares[token]), -9999.0))


class TokenTexts:
    """Texts of single tokens, as they stand behind other text."""

    def __init__(self, model: Model) -> None:
        self._model = model
        # Some decoders drop a space at the beginning; nothing is at the beginning behind this.
        self._before = model.tokenizer.encode("a", add_special_tokens=False).ids
        self._skipped = len(model.decode(self._before))
        self._cached = lru_cache(maxsize=4096)(self._text)

    def __call__(self, token: int) -> str:
        """The text of a token; of one without text, such as an end of text, its name."""
        return self._cached(token)

    def _text(self, token: int) -> str:
        text = self._model.decode([*self._before, token])[self._skipped :]
        return text or str(self._model.tokenizer.id_to_token(token) or "")
