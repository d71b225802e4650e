"""Configurations of models of two texts with the keys and values of published ones.

``published_seq2seq.json`` holds them, with the recipe and some of the fields that each must give.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.architectures import build
from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, resolve_config
from maxtool.weights import Checkpoint, open_checkpoint

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "published_seq2seq.json").read_text()
)


def written(folder: Path, config: dict[str, Any]) -> Checkpoint:
    save_file({"x": np.zeros(1, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_pass(tmp_path: Path, name: str) -> None:
    told = PUBLISHED[name]
    checkpoint = written(tmp_path, told["config"])
    recipe = find_recipe(checkpoint)
    found = resolve_config(recipe, checkpoint)
    assert (recipe.name, found.notes) == (told["recipe"], [])
    assert {field: found.values[field] for field in told["fields"]} == told["fields"]
    assert build(recipe.architecture, found.values).context == found.values["context_length"]


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("bart-base", {"normalize_before": True}, "normalize_before = True"),
        ("bart-base", {"extra_pos_embeddings": 0}, "extra_pos_embeddings = 0"),
        ("bart-base", {"decoder_start_token_id": 50265}, "start_token is 50265"),
        ("bart-base", {"encoder_attention_heads": 7}, "not a multiple of encoder_heads 7"),
        ("bart-base", {"encoder_layers": 10**6, "num_hidden_layers": 10**6}, "above 10000"),
        ("t5-small", {"feed_forward_proj": "gated-prelu"}, "'prelu' is not one of gelu, gelu_10"),
        ("t5-small", {"feed_forward_proj": "relu-gated"}, "is not an activation"),
        ("t5-small", {"relative_attention_num_buckets": 2}, "relative_buckets 2"),
        ("t5-small", {"relative_attention_max_distance": 8}, "relative_distance 8"),
        ("t5-small", {"rope_theta": 1.0}, "rope_theta = 1.0 is unknown"),
    ],
)
def test_what_is_refused(name: str, changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    checkpoint = written(tmp_path, PUBLISHED[name]["config"] | changes)
    with pytest.raises(ConfigurationError) as refusal:
        recipe = find_recipe(checkpoint)
        build(recipe.architecture, resolve_config(recipe, checkpoint).values)
    assert problem in str(refusal.value)
