"""Computations of the tests of artifacts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.runtime import loader

Array = np.ndarray[Any, Any]
# From a source and options of artifact.Request to the artifact's folder.
Compile = Callable[..., Path]

BOUND = 1e-5
# Activations are rounded to bfloat16, too.
PAIRS_BOUND = 2e-2


def bound(folder: Path) -> float:
    """The error that a checkpoint's outputs may have: some CPUs multiply pairs of bfloat16."""
    config = json.loads((folder / "config.json").read_text())
    types = {config.get(key) for key in ("dtype", "torch_dtype")}
    return PAIRS_BOUND if "bfloat16" in types else BOUND


def error(actual: Array, expected: Array) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def recorded(folder: Path) -> dict[str, Array]:
    """Return the outputs of transformers recorded for a checkpoint."""
    with np.load(folder / "expected.npz") as arrays:
        return dict(arrays)


def logits(artifact: Path, ids: Array) -> Array:
    """The entry ``forward``."""
    return loader.load(artifact)(input_ids=ids)["logits"]


def greedy(artifact: Path, prompt: Array, count: int) -> list[int]:
    """The likeliest tokens after a prompt, end tokens included, by ``prefill`` and ``decode``."""
    model = loader.load(artifact)
    state = model.new_state(batch=1)
    tokens: list[int] = []
    inputs, position, entry = prompt, 0, "prefill"
    while len(tokens) < count:
        arrays = {"input_ids": inputs, "position": np.array([position], np.int32)}
        position += inputs.shape[1]
        tokens.append(int(model.run(entry, arrays, state)["logits"][0].argmax()))
        inputs, entry = np.array([[tokens[-1]]]), "decode"
    return tokens
