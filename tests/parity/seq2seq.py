"""Models of two texts, traced, and computed in float64 without a compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.data.seeded import input_ids
from tests.data.seq2seq_inputs import PROMPT, TOKENS, sources, thinned
from tests.parity.traced import TracedModel

Array = np.ndarray[Any, Any]


def steps(size: int, length: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """The calls behind a source of so many tokens: the prompt, then one token at a time."""
    ids = input_ids(TOKENS, size)
    for start, stop in [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, TOKENS))]:
        numbers = {"position": start, "source_length": length}
        inputs = {name: np.array([number], np.int32) for name, number in numbers.items()}
        yield ("decode" if start else "prefill"), {"input_ids": ids[:, start:stop], **inputs}


def outputs(runner: Any, size: int) -> dict[str, Array]:
    """Some of the encoder's output for each source, and of logits by prefill and steps."""
    state, found = runner.new_state(batch=1), {}
    for number, source in enumerate(sources(size)):
        encoded = runner.run("encode", {"input_ids": source}, state)
        calls = steps(size, source.shape[1])
        logits = [runner.run(*call, state)["logits"] for call in calls]
        found[f"encoded {number}"] = thinned(encoded["last_hidden_state"])
        found[f"logits {number}"] = thinned(np.stack(logits, 1))
    return found


class Seq2SeqModel(TracedModel):
    """The graphs of a checkpoint with an encoder of texts."""

    def outputs(self, config: dict[str, Any]) -> dict[str, Array]:
        """The encoder's outputs, and logits by prefill and steps."""
        return outputs(self._runner, config["vocab_size"])
