"""Parity: the outputs of an artifact against the float64 reference of its architecture."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from maxtool.errors import ParityFailed
from maxtool.parity.compare import Comparison, SupportsTolerance, compare
from maxtool.parity.references import (
    CachedReference,
    EmbeddingReference,
    Reference,
    reference,
)
from maxtool.runtime import loader
from maxtool.weights import Checkpoint

Array: TypeAlias = np.ndarray[Any, Any]
# By what was run: what the artifact gave, and what its reference gives.
Outputs: TypeAlias = dict[str, tuple[Array, Array]]

# Enough tokens for positions, masks and the cache to matter; the reference is slow.
TOKENS = 24
MASK = "attention_mask"


def check(folder: Path, checkpoint: Checkpoint, tolerance: SupportsTolerance) -> Comparison:
    """Compare every entry with the reference: for a decoder, the cached ones called in turn.

    Inputs are drawn at random, with a fixed seed, from all values that are allowed; masks leave
    one text whole and pad the others.

    Args:
        folder: The artifact, compiled for this machine.
        checkpoint: What it was compiled from; its reference is chosen and computed from it alone.
        tolerance: What is allowed.

    Returns:
        The comparison that is furthest off.

    Raises:
        ParityFailed: If one of them is not allowed.
        ConfigurationError: If there is no reference for this kind of model.
    """
    model, expected = loader.load(folder), reference(checkpoint)
    outputs = _forward(model, expected)
    if isinstance(expected, CachedReference):
        outputs["prefill and decode"] = _in_turn(model, expected)
    if isinstance(expected, EmbeddingReference):
        outputs["embed"] = _embedded(model, expected)
    found = {name: compare(*both, tolerance) for name, both in outputs.items()}
    failed = [f"{name}: {result}" for name, result in found.items() if not result.passed]
    if failed:
        raise ParityFailed(
            "the compiled model does not compute what its reference computes", problems=failed
        )
    return max(found.values(), key=lambda result: result.relative_error)


def _forward(model: loader.Model, expected: Reference) -> Outputs:
    inputs = _inputs(model, "forward")
    found, wanted = model.run("forward", inputs), expected.forward(inputs)
    return {f"forward, {name}": (found[name], wanted[name]) for name in found}


def _in_turn(model: loader.Model, expected: CachedReference) -> tuple[Array, Array]:
    ids = _inputs(model, "forward")["input_ids"]
    starts = [0, *range(ids.shape[1] // 2 + 1, ids.shape[1])]
    return _cached(model, ids, starts), expected.cached(ids, starts)


def _embedded(model: loader.Model, expected: EmbeddingReference) -> tuple[Array, Array]:
    inputs, facts = _inputs(model, "embed"), model.manifest.root
    wanted = expected.embed(inputs, facts["pooling"], normalize=facts["normalize"])
    return model.run("embed", inputs)["embeddings"], wanted


def _inputs(model: loader.Model, name: str) -> dict[str, Array]:
    """Values for the inputs ``[batch, seq]`` of an entry; one text where none is padded."""
    specs = model.entry(name).inputs
    masked = MASK in {spec.name for spec in specs}
    length = min(TOKENS, model.manifest.context or TOKENS)
    lengths = [length, length - length // 3, 1] if masked else [length]
    shape, random = (len(lengths), length), np.random.default_rng(0)
    inputs = {}
    for spec in specs:
        low, high = model.manifest.limits[spec.name]
        inputs[spec.name] = random.integers(low, high + 1, shape)
    if masked:
        inputs[MASK] = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int64)
    return inputs


def _cached(model: loader.Model, ids: Array, starts: list[int]) -> Array:
    """Logits after each call: ``prefill`` up to the second start, then ``decode``."""
    state = model.new_state(batch=1)
    logits = []
    for start, stop in pairwise([*starts, ids.shape[1]]):
        name = "decode" if start else "prefill"
        inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        logits.append(model.run(name, inputs, state)["logits"])
    return np.stack(logits, axis=1)
