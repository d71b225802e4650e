"""Rotary positions of images: what files of Qwen's language models say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, resolve_config, written_keys
from maxtool.weights import Checkpoint
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
