"""Parity: the outputs of an artifact against the float64 reference of its architecture."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.errors import ParityFailed
from maxtool.parity.compare import Comparison, SupportsTolerance, compare
from maxtool.parity.references import CachedReference, reference
from maxtool.runtime import loader
from maxtool.weights import Checkpoint

Array = np.ndarray[Any, Any]

# Enough tokens for positions, masks and the cache to matter; the reference is slow.
TOKENS = 24


def check(folder: Path, checkpoint: Checkpoint, tolerance: SupportsTolerance) -> Comparison:
    """Compare ``forward``, and ``prefill`` followed by ``decode``, with the reference.

    The tokens are drawn at random, with a fixed seed, from the whole vocabulary.

    Args:
        folder: The artifact, compiled for this machine.
        checkpoint: What it was compiled from; its reference is chosen and computed from it alone.
        tolerance: What is allowed.

    Returns:
        The comparison that is further off of the two.

    Raises:
        ParityFailed: If one of them is not allowed.
        ConfigurationError: If there is no reference for this kind of model.
    """
    model, expected = loader.load(folder), reference(checkpoint)
    vocabulary, context = model.manifest.root["vocab_size"], model.manifest.context or TOKENS
    ids = np.random.default_rng(0).integers(0, vocabulary, (1, min(TOKENS, context)))
    logits = expected.forward({"input_ids": ids})["logits"]
    found = {"forward": compare(model(input_ids=ids)["logits"], logits, tolerance)}
    if isinstance(expected, CachedReference):
        starts = [0, *range(ids.shape[1] // 2 + 1, ids.shape[1])]
        logits = expected.cached(ids, starts)
        found["prefill and decode"] = compare(_cached(model, ids, starts), logits, tolerance)
    failed = [f"{name}: {result}" for name, result in found.items() if not result.passed]
    if failed:
        raise ParityFailed(
            "the compiled model does not compute what its reference computes", problems=failed
        )
    return max(found.values(), key=lambda result: result.relative_error)


def _cached(model: loader.Model, ids: Array, starts: list[int]) -> Array:
    """Logits after each call: ``prefill`` up to the second start, then ``decode``."""
    state = model.new_state(batch=1)
    logits = []
    for start, stop in pairwise([*starts, ids.shape[1]]):
        name = "decode" if start else "prefill"
        inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        logits.append(model.run(name, inputs, state)["logits"])
    return np.stack(logits, axis=1)
