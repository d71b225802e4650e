"""Scores of texts as transformers computes them, where the last token of a decoder makes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from maxtool.recipe.logit_scores import CONFIG, FALSE, KIND, TRUE
from maxtool.recipe.sentence_modules import modules_of

Array: TypeAlias = np.ndarray[Any, Any]
# Gives the logits of inputs by name.
Called: TypeAlias = Callable[[Mapping[str, Array]], Array]


def tokens_of(folder: Path) -> tuple[int, int | None] | None:
    """The token whose logit counts, and the one whose logit is taken off; None for no such model.

    Both are read anew: what is compared shares nothing with them.
    """
    modules = modules_of(folder, KIND)
    if not modules:
        return None
    config = json.loads((folder / modules[0].path / CONFIG).read_text())
    return config[TRUE], config.get(FALSE)


def scored(
    model: Called, inputs: Mapping[str, Array], tokens: tuple[int, int | None] | None
) -> Array:
    """The scores of texts, each by itself: transformers tells padding by its token, not a mask."""
    lengths = inputs["attention_mask"].sum(1)
    rows = [
        _one(model({"input_ids": ids[None, :length]})[0], tokens)
        for ids, length in zip(inputs["input_ids"], lengths, strict=True)
    ]
    return np.stack(rows)


def _one(logits: Array, tokens: tuple[int, int | None] | None) -> Array:
    """The scores of a text: what a head for labels gives, or logits of its last token."""
    if tokens is None:
        return logits
    wanted, other = tokens
    last = logits[-1]
    score: Array = last[wanted] - (0.0 if other is None else last[other])
    return np.array([score], last.dtype)
