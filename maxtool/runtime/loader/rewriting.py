"""Texts written behind others, as a model with an encoder does: the source is read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .entries import EntryRunner
from .errors import DoesNotFit
from .memory import Array
from .sampling import Choose
from .specs import ENCODE, SOURCE_LENGTH
from .writing_rules import WritingRules
from .writing_spec import WritingSpec


class Rewriter:
    """The memory of one source, and of the text that is written behind it."""

    def __init__(self, model: EntryRunner) -> None:
        self._model, self._state = model, model.new_state(batch=1)

    def generate(self, ids: Sequence[int], count: int, choose: Choose) -> Iterator[int]:
        """Tokens of a text for the source ``ids``, up to ``count`` or an end-of-text token."""
        spec = spec_of(self._model)
        self._model.run(ENCODE, {"input_ids": [list(ids)]}, self._state)
        rules, text = WritingRules(spec, 1 + count), [spec.start]
        for position in range(count):
            logits = self._read(text[position:], position, len(ids))
            chosen = choose(rules.scores(logits, text), text)
            if chosen in spec.ends:
                return
            text.append(chosen)
            yield chosen

    def _read(self, ids: Sequence[int], position: int, source: int) -> Array:
        """The logits behind tokens that begin at a position, for a source of so many."""
        numbers = {"position": position, SOURCE_LENGTH: source}
        inputs = {name: np.array([number], np.int32) for name, number in numbers.items()}
        entry = "decode" if position else "prefill"
        found = self._model.run(entry, {"input_ids": [list(ids)], **inputs}, self._state)
        logits: Array = found["logits"][0]
        return logits


def spec_of(model: EntryRunner) -> WritingSpec:
    """Return how a model's texts begin and end.

    Raises:
        DoesNotFit: If the artifact does not say so.
    """
    spec = model.manifest.writing
    if spec is None:
        what = "nothing says what token the texts begin with that the model writes"
        hint = "compile it with decoder_start_token_id in its config.json, or give --inputs"
        raise DoesNotFit(what, hint=hint)
    return spec


def check_source(model: EntryRunner, ids: Sequence[int]) -> None:
    """Refuse tokens of a source that the model cannot read, or behind which it cannot write."""
    spec_of(model)
    model.binder.bind(model.entry(ENCODE), {"input_ids": [list(ids)]})
