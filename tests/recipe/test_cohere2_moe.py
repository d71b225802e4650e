"""Command A+: what first layers without experts have besides, and files of either kind."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from maxtool.recipe import load_recipe, resolve_config
from maxtool.weights import open_checkpoint
from tests.recipe.test_published import PUBLISHED, resolved
from tests.variants.rows import Files, rows

CONFIG = PUBLISHED["North-Mini-Code-1.0"]["config"]
LAYERS = CONFIG["num_hidden_layers"]


def values(folder: Path, **changed: Any) -> dict[str, Any]:
    """The fields of the published configuration with some keys changed, or left out (...)."""
    kept = {key: value for key, value in {**CONFIG, **changed}.items() if value is not ...}
    return resolved(folder, kept)[1].values


def test_windows_of_the_first_layers(tmp_path: Path) -> None:
    """Rotate those that have one, and all of them where none has."""
    changed = {"first_k_dense_replace": 4, "prefix_dense_sliding_window_pattern": 2}
    found = values(tmp_path, **changed)
    first = (True, False, True, False)
    assert found["sliding_layers"][:9] == (*first, True, True, True, False, True)
    assert found["rope_layers"][:9] == found["sliding_layers"][:9]
    none = values(tmp_path, **changed | {"prefix_dense_sliding_window_pattern": 1})
    assert none["sliding_layers"][:5] == (False, False, False, False, True)
    assert none["rope_layers"][:5] == (True,) * 5


def test_weights_of_experts_that_no_key_says_to_divide(tmp_path: Path) -> None:
    assert values(tmp_path, norm_topk_prob=...)["norm_topk"] is True
    assert values(tmp_path, norm_topk_prob=False)["norm_topk"] is False


def test_scaling_beside_what_transformers_reads(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 50000.0}
    both = {"rope_parameters": rope, "rope_scaling": {"type": "default"}}
    assert values(tmp_path, **both)["rope_scaling"] == "none"
    with pytest.raises(ConfigurationError, match=r"rope_scaling\.type = 'yarn'"):
        values(tmp_path, **both | {"rope_scaling": {"type": "yarn"}})


def test_windows_of_gguf_that_no_key_lists(tmp_path: Path) -> None:
    """Take all layers but every fourth, as llama.cpp does."""
    row = next(row for row in rows("cohere2_moe") if row.more.get("gguf"))
    source = Files(tmp_path / "hf").checkpoint(row)
    convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    key = "cohere2moe.attention.sliding_window_pattern"
    keys = {name: value for name, value in checkpoint.metadata.items() if name != key}
    keys["cohere2moe.block_count"] = np.uint32(9)
    recipe = load_recipe("cohere2_moe")
    found = resolve_config(recipe, dataclasses.replace(checkpoint, metadata=keys))
    assert found.values["sliding_layers"] == tuple((i + 1) % 4 != 0 for i in range(9))
    keys[key] = np.array([False, True, *[False] * 7])
    found = resolve_config(recipe, dataclasses.replace(checkpoint, metadata=keys))
    assert found.values["sliding_layers"] == (False, True, *[False] * 7)
