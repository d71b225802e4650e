"""Mellum 2: windows that no layer has, layers that predict further tokens, files of either kind."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, load_recipe, plan, resolve_config, written_keys
from maxtool.weights import Checkpoint, open_checkpoint
from tests.recipe.test_published import PUBLISHED, resolved
from tests.variants.rows import Files, rows

CONFIG = PUBLISHED["Mellum2-12B-A2.5B-Base"]["config"]
LAYERS = CONFIG["num_hidden_layers"]
FULL = {"layer_types": ["full_attention"] * LAYERS}


def values(folder: Path, **changed: Any) -> dict[str, Any]:
    """The fields of the published configuration with some keys changed, or left out (...)."""
    kept = {key: value for key, value in {**CONFIG, **changed}.items() if value is not ...}
    return resolved(folder, kept)[1].values


@pytest.mark.parametrize("layers", [FULL, {"layer_types": ...}])
def test_a_null_window_where_no_layer_has_one(layers: dict[str, Any], tmp_path: Path) -> None:
    found = values(tmp_path, sliding_window=None, **layers)
    assert found["sliding_window"] == found["context_length"]
    assert found["sliding_layers"] == (False,) * LAYERS


def test_a_null_window_of_some_layers(tmp_path: Path) -> None:
    """Refuse what transformers does not run."""
    with pytest.raises(ConfigurationError, match="there are layers with a window"):
        values(tmp_path, sliding_window=None)
    assert values(tmp_path, sliding_window=...)["sliding_window"] == 1024


@pytest.mark.parametrize("key", ["num_mtp_layers", "num_nextn_predict_layers"])
def test_layers_that_predict(key: str, tmp_path: Path) -> None:
    for count in (0, 1, None):
        assert values(tmp_path, **{key: count})["n_layers"] == LAYERS
    with pytest.raises(ConfigurationError, match=f"{key} = 2 is not supported"):
        values(tmp_path, **{key: 2})


def test_the_scaling_of_layers_with_a_window(tmp_path: Path) -> None:
    rope = CONFIG["rope_parameters"]
    scaled = {**rope, "sliding_attention": {**rope["sliding_attention"], "rope_type": "linear"}}
    with pytest.raises(ConfigurationError, match=r"sliding_attention\.rope_type = 'linear'"):
        values(tmp_path, rope_parameters=scaled)
    written = written_keys(load_recipe("mellum"), "hf", values(tmp_path))
    assert written["rope_parameters.sliding_attention.rope_type"] == "default"


def test_tensors_that_are_left_out(tmp_path: Path) -> None:
    row = next(row for row in rows("mellum") if row.config["tie_word_embeddings"])
    checkpoint = Files(tmp_path).checkpoint(row)
    plan(find_recipe(checkpoint), checkpoint).check()
    file = checkpoint.path / "model.safetensors"
    held = load_file(file)
    left = ("model.rotary_emb.inv_freq", "mtp.layers.0.norm.weight")
    one = {name: np.ones(2, "f4") for name in left}
    save_file(held | one | {"lm_head.weight": held["model.embed_tokens.weight"]}, file)
    again = open_checkpoint(checkpoint.path)
    planned = plan(find_recipe(again), again)
    planned.check()
    assert {*planned.dropped} == {*left}


@pytest.fixture
def converted(tmp_path: Path) -> Checkpoint:
    row = next(row for row in rows("mellum") if len(row.config["layer_types"]) == 3)
    source = Files(tmp_path / "hf").checkpoint(row)
    convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
    return open_checkpoint(tmp_path / "model.gguf")


def test_windows_of_gguf_that_no_key_lists(converted: Checkpoint) -> None:
    """Take all layers but every fourth, as llama.cpp does."""
    key = "mellum.attention.sliding_window_pattern"
    keys = {name: value for name, value in converted.metadata.items() if name != key}
    keys["mellum.block_count"] = np.uint32(9)
    found = resolve_config(load_recipe("mellum"), dataclasses.replace(converted, metadata=keys))
    assert found.values["sliding_layers"] == tuple((i + 1) % 4 != 0 for i in range(9))
    keys[key] = np.array([False, True, *[False] * 7])
    found = resolve_config(load_recipe("mellum"), dataclasses.replace(converted, metadata=keys))
    assert found.values["sliding_layers"] == (False, True, *[False] * 7)
