"""Parity: the outputs of an artifact against the float64 reference of its architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.errors import ParityFailed
from maxtool.parity.compare import Comparison, SupportsTolerance, compare
from maxtool.parity.decoder import reference_logits
from maxtool.runtime import loader
from maxtool.weights import Checkpoint

Array = np.ndarray[Any, Any]

# Enough tokens for positions, masks and the cache to matter; the reference is slow.
TOKENS = 24

REFERENCES: Mapping[str, Callable[[Checkpoint, Array], Array]] = {"decoder": reference_logits}


def check(
    folder: Path, architecture: str, checkpoint: Checkpoint, tolerance: SupportsTolerance
) -> Comparison:
    """Compare ``forward``, and ``prefill`` followed by ``decode``, with the reference.

    The tokens are drawn at random, with a fixed seed, from the whole vocabulary.

    Args:
        folder: The artifact, compiled for this machine.
        architecture: Whose reference it is compared with.
        checkpoint: What it was compiled from; the reference reads it by itself.
        tolerance: What is allowed.

    Returns:
        The comparison that is further off of the two.

    Raises:
        ParityFailed: If one of them is not allowed.
    """
    model = loader.load(folder)
    vocabulary, context = model.manifest.root["vocab_size"], model.manifest.context or TOKENS
    ids = np.random.default_rng(0).integers(0, vocabulary, (1, min(TOKENS, context)))
    expected = REFERENCES[architecture](checkpoint, ids)
    half = ids.shape[1] // 2
    found = {
        "forward": compare(model(input_ids=ids)["logits"], expected, tolerance),
        "prefill and decode": compare(_cached(model, ids, half), expected[:, half:], tolerance),
    }
    failed = [f"{name}: {result}" for name, result in found.items() if not result.passed]
    if failed:
        raise ParityFailed(
            "the compiled model does not compute what its reference computes", problems=failed
        )
    return max(found.values(), key=lambda result: result.relative_error)


def _cached(model: loader.Model, ids: Array, half: int) -> Array:
    """Logits from token ``half`` on: all up to it in one call, then one at a time."""
    state = model.new_state(batch=1)
    cuts = [0, *range(half + 1, ids.shape[1] + 1)]
    logits = []
    for start, stop in pairwise(cuts):
        name = "decode" if start else "prefill"
        inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        logits.append(model.run(name, inputs, state)["logits"])
    return np.stack(logits, axis=1)
