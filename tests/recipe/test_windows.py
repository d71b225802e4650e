"""Layers with a window, and layers that rotate: lists go before periods, as in transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxtool.architectures import DecoderConfig, decoder_checks
from maxtool.architectures.config import typed
from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, resolve_config
from maxtool.weights import open_checkpoint

Edit = Callable[..., Path]

S, F = "sliding_attention", "full_attention"
QWEN = {"use_sliding_window": True, "sliding_window": 5}
SMOLLM = QWEN | {"layer_types": ...}

# Checkpoint, what its configuration says, and which layers transformers gives the window.
WINDOWS = [
    ("tiny-gemma2", {}, (1, 0, 1)),
    ("tiny-gemma2", {"layer_types": [F, S, S], "_sliding_window_pattern": 2}, (0, 1, 1)),
    ("tiny-gemma3", {"sliding_window_pattern": 2}, (1, 0, 1, 0)),
    ("tiny-gemma3", {"layer_types": [F, S, S, F], "sliding_window_pattern": 2}, (0, 1, 1, 0)),
    ("tiny-gemma3", {"layer_types": [F] * 4, "sliding_window_pattern": 3}, (0, 0, 0, 0)),
    ("tiny-gemma3", {"layer_types": None, "sliding_window_pattern": 3}, (1, 1, 0, 1)),
    ("tiny-qwen2", QWEN | {"max_window_layers": 2}, (0, 0, 1)),
    ("tiny-qwen2", QWEN | {"max_window_layers": 2, "layer_types": [S, F, F]}, (1, 0, 0)),
    ("tiny-qwen2", QWEN | {"max_window_layers": 0, "layer_types": [F, F, F]}, (0, 0, 0)),
    ("tiny-qwen2", QWEN | {"use_sliding_window": False, "layer_types": [F] * 3}, (0, 0, 0)),
    ("tiny-qwen3", QWEN | {"max_window_layers": 1}, (0, 1)),
    ("tiny-qwen3", QWEN | {"max_window_layers": 1, "layer_types": [S, F]}, (1, 0)),
    ("tiny-smollm3", SMOLLM | {"no_rope_layers": [1, 0, 1, 0]}, (0, 1, 0, 1)),
    ("tiny-smollm3", SMOLLM | {"no_rope_layers": ..., "no_rope_layer_interval": 3}, (0, 0, 1, 0)),
    ("tiny-smollm3", QWEN | {"layer_types": [S, F, F, S]}, (1, 0, 0, 1)),
]

# What SmolLM 3's configuration says, and which layers transformers rotates.
ROTATED = [
    ({"no_rope_layers": ..., "no_rope_layer_interval": 2}, (1, 0, 1, 0)),
    ({"no_rope_layers": [0, 1, 1, 0], "no_rope_layer_interval": 2}, (0, 1, 1, 0)),
    ({"no_rope_layers": [1, 1, 1, 1], "no_rope_layer_interval": 4}, (1, 1, 1, 1)),
    ({"no_rope_layers": [0, 0, 0, 0], "no_rope_layer_interval": 4}, (0, 0, 0, 0)),
]


def _flags(values: dict[str, Any], field: str, *, unless: bool) -> tuple[int, ...]:
    """A field of flags written out; null means ``unless`` for every layer."""
    flags = values.get(field)
    return tuple(map(int, flags or (unless,) * values["n_layers"]))


@pytest.mark.parametrize(("name", "config", "expected"), WINDOWS)
def test_windows(
    name: str, config: dict[str, Any], expected: tuple[int, ...], edited: Edit
) -> None:
    checkpoint = open_checkpoint(edited(name, config))
    values = resolve_config(find_recipe(checkpoint), checkpoint).values
    windowed = values["sliding_window"] is not None
    found = _flags(values, "sliding_layers", unless=windowed)
    assert found == expected
    config = typed(DecoderConfig, values, decoder_checks.problems)
    windows = [config.window(layer) for layer in range(config.n_layers)]
    assert tuple(int(window is not None) for window in windows) == expected


@pytest.mark.parametrize(("config", "expected"), ROTATED)
def test_layers_that_rotate(
    config: dict[str, Any], expected: tuple[int, ...], edited: Edit
) -> None:
    checkpoint = open_checkpoint(edited("tiny-smollm3", config))
    values = resolve_config(find_recipe(checkpoint), checkpoint).values
    assert _flags(values, "rope_layers", unless=True) == expected
    config = typed(DecoderConfig, values, decoder_checks.problems)
    assert tuple(int(config.has_rope(layer)) for layer in range(config.n_layers)) == expected


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("tiny-gemma3", {"layer_types": [F, S], "sliding_window_pattern": 2}),
        ("tiny-qwen2", QWEN | {"layer_types": [F, S, "linear_attention"], "max_window_layers": 1}),
        ("tiny-qwen2", QWEN | {"layer_types": 3, "max_window_layers": 1}),
        ("tiny-smollm3", {"no_rope_layers": [1, 0], "no_rope_layer_interval": 2}),
    ],
)
def test_a_list_that_cannot_be_is_an_error_whatever_the_period_says(
    name: str, config: dict[str, Any], edited: Edit
) -> None:
    checkpoint = open_checkpoint(edited(name, config))
    with pytest.raises(ConfigurationError, match=r"layer_types|no_rope_layers"):
        resolve_config(find_recipe(checkpoint), checkpoint)
