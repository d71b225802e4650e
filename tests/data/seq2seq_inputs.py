"""What tiny models of two texts are given: sources of several lengths, and tokens behind them."""

from __future__ import annotations

from tests.data.seeded import Array, input_ids

CONTEXT = 24
SOURCES = (17, 6)
"""Tokens of sources that are read one after the other, by one state."""
PROMPT, TOKENS = 3, 19
"""Tokens that are read at once behind each, and all of them."""
WRITTEN = 9


def sources(size: int) -> list[Array]:
    """The sources ``[1, tokens]`` of a model of so many tokens."""
    return [input_ids(count, size, lowest=3 + count % 5) for count in SOURCES]


def thinned(outputs: Array) -> Array:
    """Some of the numbers of each token, of outputs ``[1, tokens, numbers]``."""
    return outputs[..., :: max(1, outputs.shape[-1] // 7)]
