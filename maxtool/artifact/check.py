"""Parity: the outputs of an artifact against the float64 reference of its architecture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact import lengths
from maxtool.errors import ParityFailed
from maxtool.parity.references import (
    CachedReference,
    EmbeddingReference,
    Reference,
    reference,
)
from maxtool.runtime import loader
from maxtool.runtime.loader.comparison import Comparison, SupportsTolerance
from maxtool.runtime.loader.specs import Spec
from maxtool.runtime.loader.trials import FILE, Call, Tolerance, Trial, save
from maxtool.weights import Checkpoint

Array: TypeAlias = np.ndarray[Any, Any]

MASK = "attention_mask"
LARGEST = 1 << 23
"""Numbers that ``forward`` may give; it is shown fewer tokens where it would give more of them."""
DECODED = 11
"""Tokens of a decoder that come one at a time, at most: they pass a window's end."""


@dataclass(frozen=True, slots=True)
class Trials:
    """What is to be compared.

    Attributes:
        each: The calls, and their outputs in float64.
        tokens: How many tokens are compared.
        unreached: Lengths, ascending, beyond which the artifact computes otherwise, and which are
            not passed: windows, and contexts of rotary scalings.
    """

    each: tuple[Trial, ...]
    tokens: int
    unreached: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """A check that was passed.

    Attributes:
        worst: The comparison that is furthest off; None where nothing was run, and the outputs
            were recorded for the machine that the artifact is for.
        tokens: How many tokens were compared, or are to be.
        unreached: As in :class:`Trials`.
    """

    worst: Comparison | None
    tokens: int
    unreached: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.worst is None:
            return f"outputs for {self.tokens} tokens recorded, to be checked where it runs"
        return f"checked with {self.tokens} tokens: {self.worst}"


def check(folder: Path, checkpoint: Checkpoint, tolerance: SupportsTolerance) -> Checked:
    """Compare every entry with the reference: for a decoder, the cached ones called in turn.

    Args:
        folder: The artifact, compiled for this machine.
        checkpoint: What it was compiled from; its reference is chosen and computed from it alone.
        tolerance: What is allowed.

    Raises:
        ParityFailed: If one of them is not allowed.
        ConfigurationError: If there is no reference for this kind of model.
    """
    trials = _trials(loader.Manifest(folder), checkpoint)
    model, allowed = loader.load(folder), Tolerance(tolerance.rtol, tolerance.atol)
    found = {trial.name: trial.compare(model, allowed) for trial in trials.each}
    failed = [f"{name}: {result}" for name, result in found.items() if not result.passed]
    if failed:
        raise ParityFailed(
            "the compiled model does not compute what its reference computes", problems=failed
        )
    worst = max(found.values(), key=lambda result: result.relative_error)
    return Checked(worst, trials.tokens, trials.unreached)


def record(folder: Path, checkpoint: Checkpoint, tolerance: SupportsTolerance) -> Checked:
    """Put the reference's outputs into an artifact that another machine runs and checks.

    Args:
        folder: The artifact.
        checkpoint: What it was compiled from.
        tolerance: What is allowed.

    Raises:
        ConfigurationError: If there is no reference for this kind of model.
    """
    trials = _trials(loader.Manifest(folder), checkpoint)
    save(folder / FILE, trials.each, Tolerance(tolerance.rtol, tolerance.atol))
    return Checked(None, trials.tokens, trials.unreached)


def _trials(manifest: loader.Manifest, checkpoint: Checkpoint) -> Trials:
    """Calls of all entries, and what the reference gives for them.

    Inputs are drawn at random, with a fixed seed, from all values that are allowed; masks leave
    one text whole and pad the others. There are as many tokens as :mod:`maxtool.artifact.lengths`
    says.
    """
    expected, context = reference(checkpoint), manifest.context
    length = lengths.tokens(expected, context)
    unreached = [turn for turn in lengths.turns(expected, context) if turn >= length]
    return Trials(tuple(_each(manifest, expected, length)), length, tuple(unreached))


def _each(manifest: loader.Manifest, expected: Reference, length: int) -> Iterator[Trial]:
    large = any(_numbers(spec, length) > LARGEST for spec in manifest.entries["forward"].outputs)
    inputs = _inputs(manifest, "forward", min(length, lengths.TOKENS) if large else length)
    for name, wanted in expected.forward(inputs).items():
        yield Trial(f"forward, {name}", [Call("forward", inputs)], name, wanted)
    if isinstance(expected, CachedReference):
        yield _in_turn(expected, _inputs(manifest, "forward", length)["input_ids"])
    if isinstance(expected, EmbeddingReference):
        inputs, facts = _inputs(manifest, "embed", length), manifest.root
        wanted = expected.embed(inputs, facts["pooling"], normalize=facts["normalize"])
        yield Trial("embed", [Call("embed", inputs)], "embeddings", wanted)


def _numbers(spec: Spec, length: int) -> int:
    """How many there are in a tensor ``[batch, ...]`` for one text."""
    return math.prod(length if isinstance(size, str) else size for size in spec.shape[1:])


def _in_turn(expected: CachedReference, ids: Array) -> Trial:
    """``prefill`` up to the second start, then ``decode``."""
    length = ids.shape[1]
    starts = [0, *range(max(length // 2 + 1, length - DECODED), length)]
    calls = [
        Call(
            "decode" if start else "prefill",
            {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)},
        )
        for start, stop in pairwise([*starts, length])
    ]
    return Trial("prefill and decode", calls, "logits", expected.cached(ids, starts))


def _inputs(manifest: loader.Manifest, name: str, length: int) -> dict[str, Array]:
    """Values for the inputs ``[batch, seq]`` of an entry; one text where none is padded."""
    specs = manifest.entries[name].inputs
    masked = MASK in {spec.name for spec in specs}
    texts = [length, length - length // 3, 1] if masked else [length]
    shape, random = (len(texts), length), np.random.default_rng(0)
    inputs = {}
    for spec in specs:
        low, high = _range(manifest, spec)
        inputs[spec.name] = random.integers(low, high + 1, shape)
    if masked:
        inputs[MASK] = (np.arange(length) < np.array(texts)[:, None]).astype(np.int64)
    return inputs


def _range(manifest: loader.Manifest, spec: Spec) -> tuple[int, int]:
    """The values that an input may have."""
    limit = manifest.limits[spec.name]
    if isinstance(limit, int):
        raise ParityFailed(f"nothing says which values {spec.name!r} may have")
    return limit
