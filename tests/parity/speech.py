"""Models of speech, traced, and computed in float64 without a compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.data.seeded import input_features, input_ids
from tests.parity.traced import TracedModel

Array = np.ndarray[Any, Any]
PROMPT, TOKENS = 5, 9
"""Tokens that are read at once, and all of them, as ``record_whisper.py`` has them."""


def steps(count: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """The calls that read ``count`` equal texts: the prompt, then one token at a time."""
    ids = np.repeat(input_ids(TOKENS), count, axis=0)
    for start, stop in [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, TOKENS))]:
        inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        yield ("decode" if start else "prefill"), inputs


class SpeechModel(TracedModel):
    """The graphs of a checkpoint with an encoder of sounds."""

    def outputs(self, config: dict[str, Any]) -> dict[str, Array]:
        """The encoder's output, and logits by prefill and steps."""
        features = input_features(config)
        state = self._runner.new_state(batch=len(features))
        encoded = self._runner.run("encode", {"input_features": features}, state)
        logits = [self._runner.run(*call, state)["logits"] for call in steps(len(features))]
        return {"encoded": encoded["last_hidden_state"], "logits": np.stack(logits, 1)}
