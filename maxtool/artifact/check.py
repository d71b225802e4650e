"""Parity: the outputs of an artifact against the float64 reference of its architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact import lengths
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
# What was run, what the artifact gave, and what its reference gives.
Output: TypeAlias = tuple[str, tuple[Array, Array]]

MASK = "attention_mask"
DECODED = 11
"""Tokens of a decoder that come one at a time, at most: they pass a window's end."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A check that was passed.

    Attributes:
        worst: The comparison that is furthest off.
        tokens: How many tokens were compared.
        unreached: Lengths, ascending, beyond which the artifact computes otherwise, and which were
            not passed: windows, and contexts of rotary scalings.
    """

    worst: Comparison
    tokens: int
    unreached: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"checked with {self.tokens} tokens: {self.worst}"


def check(folder: Path, checkpoint: Checkpoint, tolerance: SupportsTolerance) -> Checked:
    """Compare every entry with the reference: for a decoder, the cached ones called in turn.

    Inputs are drawn at random, with a fixed seed, from all values that are allowed; masks leave
    one text whole and pad the others. There are as many tokens as :mod:`maxtool.artifact.lengths`
    says.

    Args:
        folder: The artifact, compiled for this machine.
        checkpoint: What it was compiled from; its reference is chosen and computed from it alone.
        tolerance: What is allowed.

    Raises:
        ParityFailed: If one of them is not allowed.
        ConfigurationError: If there is no reference for this kind of model.
    """
    model, expected = loader.load(folder), reference(checkpoint)
    context = model.manifest.context
    length = lengths.tokens(expected, context)
    found = {name: compare(*both, tolerance) for name, both in _outputs(model, expected, length)}
    failed = [f"{name}: {result}" for name, result in found.items() if not result.passed]
    if failed:
        raise ParityFailed(
            "the compiled model does not compute what its reference computes", problems=failed
        )
    worst = max(found.values(), key=lambda result: result.relative_error)
    unreached = [turn for turn in lengths.turns(expected, context) if turn >= length]
    return Checked(worst, length, tuple(unreached))


def _outputs(model: loader.Model, expected: Reference, length: int) -> Iterator[Output]:
    inputs = _inputs(model, "forward", length)
    found, wanted = model.run("forward", inputs), expected.forward(inputs)
    yield from ((f"forward, {name}", (found[name], wanted[name])) for name in found)
    if isinstance(expected, CachedReference):
        yield "prefill and decode", _in_turn(model, expected, inputs["input_ids"])
    if isinstance(expected, EmbeddingReference):
        yield "embed", _embedded(model, expected, length)


def _in_turn(model: loader.Model, expected: CachedReference, ids: Array) -> tuple[Array, Array]:
    length = ids.shape[1]
    starts = [0, *range(max(length // 2 + 1, length - DECODED), length)]
    return _cached(model, ids, starts), expected.cached(ids, starts)


def _embedded(
    model: loader.Model, expected: EmbeddingReference, length: int
) -> tuple[Array, Array]:
    inputs, facts = _inputs(model, "embed", length), model.manifest.root
    wanted = expected.embed(inputs, facts["pooling"], normalize=facts["normalize"])
    return model.run("embed", inputs)["embeddings"], wanted


def _inputs(model: loader.Model, name: str, length: int) -> dict[str, Array]:
    """Values for the inputs ``[batch, seq]`` of an entry; one text where none is padded."""
    specs = model.entry(name).inputs
    masked = MASK in {spec.name for spec in specs}
    texts = [length, length - length // 3, 1] if masked else [length]
    shape, random = (len(texts), length), np.random.default_rng(0)
    inputs = {}
    for spec in specs:
        low, high = model.manifest.limits[spec.name]
        inputs[spec.name] = random.integers(low, high + 1, shape)
    if masked:
        inputs[MASK] = (np.arange(length) < np.array(texts)[:, None]).astype(np.int64)
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
