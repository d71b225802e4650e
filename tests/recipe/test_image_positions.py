"""Rotary positions of images: what files of Qwen's language models say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, plan, resolve_config, written_keys
from maxtool.weights import Checkpoint, open_checkpoint
from tests.variants.rows import Files, rows

FAMILIES = ["qwen3_vl", "qwen3_vl_moe"]


def told(
    family: str, folder: Path, rotary: Mapping[str, Any], key: str = "rope_parameters"
) -> Checkpoint:
    """A recorded configuration with other rotary parameters."""
    row = next(rows(family))
    text = {key: each for key, each in row.config["text_config"].items() if "rope" not in key}
    config = {**row.config, "text_config": {**text, key: dict(rotary)}}
    return Files(folder).checkpoint(replace(row, config=config))


def fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return dict(resolve_config(find_recipe(checkpoint), checkpoint).values)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_gguf_is_told(family: str, tmp_path: Path) -> None:
    """Write what all published models have, in llama.cpp's names: the rest of a head is none's."""
    checkpoint = told(family, tmp_path, {"rope_type": "default", "rope_theta": 1e6})
    recipe = find_recipe(checkpoint)
    keys = written_keys(recipe, "gguf", fields(checkpoint))
    arch = family.replace("_", "")
    assert keys[f"{arch}.rope.dimension_sections"] == [24, 20, 20, 0]
    assert keys[f"{arch}.n_deepstack_layers"] == 3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_sections_take_turns(family: str, key: str, tmp_path: Path) -> None:
    rotary = {"rope_type": "default", "mrope_section": [24, 20, 20], "rope_theta": 1e6}
    whole = told(family, tmp_path / "whole", rotary | {"mrope_interleaved": True}, key)
    assert fields(whole)["rope_theta"] == 1e6
    for name, value in (("mrope_interleaved", False), ("mrope_section", [16, 24, 24])):
        with pytest.raises(ConfigurationError, match=name):
            fields(told(family, tmp_path / name, rotary | {name: value}, key))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_class_that_is_written(family: str, tmp_path: Path) -> None:
    checkpoint = told(family, tmp_path, {"rope_type": "default", "rope_theta": 1e6})
    keys = written_keys(find_recipe(checkpoint), "hf", fields(checkpoint))
    kind = "Qwen3VLMoe" if family.endswith("moe") else "Qwen3VL"
    assert (keys["model_type"], keys["architectures"]) == (f"{family}_text", [f"{kind}TextModel"])


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_that_transformers_has_not_here(family: str, tmp_path: Path) -> None:
    row = next(rows(family))
    text = {**row.config["text_config"], "use_sliding_window": True, "sliding_window": 4}
    config = {**row.config, "text_config": text}
    with pytest.raises(ConfigurationError, match="sliding_window"):
        fields(Files(tmp_path).checkpoint(replace(row, config=config)))


def first(folder: Path, **changed: Any) -> Checkpoint:
    """A recorded Qwen 2 VL, whose configuration is flat, with other keys."""
    row = next(rows("qwen2_vl"))
    inner = row.config.get("text_config")
    config = (
        {**row.config, **changed}
        if inner is None
        else {**row.config, "text_config": {**inner, **changed}}
    )
    return Files(folder).checkpoint(replace(row, config=config))


@pytest.mark.parametrize("switch", [True, False, None])
def test_a_switch_that_says_what_the_model_is(switch: bool | None, tmp_path: Path) -> None:
    assert fields(first(tmp_path, use_mrope=switch))["qkv_bias"] is True


def test_heads_that_do_not_share_the_width(tmp_path: Path) -> None:
    """Refuse a size of heads that transformers does not read here."""
    config = fields(first(tmp_path / "usual"))
    size = config["hidden_size"] // config["n_heads"]
    assert fields(first(tmp_path / "said", head_dim=size))["head_dim"] == size
    with pytest.raises(ConfigurationError, match="head_dim"):
        fields(first(tmp_path / "other", head_dim=size + 1))


def test_heads_that_do_not_share_the_width_in_gguf(tmp_path: Path) -> None:
    source = first(tmp_path / "hf")
    convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    size = int(fields(checkpoint)["head_dim"])
    assert not any("key_length" in key or "value_length" in key for key in checkpoint.metadata)
    for name in ("key_length", "value_length"):
        for number, fits in ((size, True), (size + 1, False)):
            keys = {**checkpoint.metadata, f"qwen2vl.attention.{name}": np.uint32(number)}
            said = replace(checkpoint, metadata=keys)
            if fits:
                assert fields(said)["head_dim"] == size
            else:
                with pytest.raises(ConfigurationError, match=name):
                    fields(said)


def test_names_that_newer_releases_write(tmp_path: Path) -> None:
    """Read a flat configuration beside names that go through the language model, too."""
    checkpoint = first(tmp_path)
    file = checkpoint.path / "model.safetensors"
    held = load_file(file)
    newer = {name.replace("model.", "model.language_model.", 1): held[name] for name in held}
    assert {*newer} != {*held}
    whole = plan(find_recipe(checkpoint), checkpoint).parameters
    save_file(newer, file)
    again = open_checkpoint(checkpoint.path)
    planned = plan(find_recipe(again), again)
    planned.check()
    assert planned.parameters.keys() == whole.keys()


def test_windows_of_the_first_kind(tmp_path: Path) -> None:
    """Write the layers that have one to GGUF, and read the same ones."""
    windows = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    source = first(tmp_path / "hf", **windows, layer_types=None)
    found = fields(source)["sliding_layers"]
    assert found[:2] == (False, True)
    convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    key = "qwen2vl.attention.sliding_window_pattern"
    assert np.array_equal(np.asarray(checkpoint.metadata[key]), found)
    assert fields(checkpoint)["sliding_layers"] == found
