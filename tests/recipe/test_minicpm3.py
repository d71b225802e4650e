"""MiniCPM 3 in GGUF: what llama.cpp takes for granted, and keys that its converter leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import load_recipe, resolve_config, written_keys, written_notes
from tests.variants.rows import Files, rows

ARCH = "minicpm3"
RECIPE = load_recipe(ARCH)


def fields(folder: Path) -> dict[str, Any]:
    """The fields of a recorded configuration that GGUF can say, without scaling."""
    row = next(row for row in rows(ARCH) if "gguf" in row.more)
    found = resolve_config(RECIPE, Files(folder).checkpoint(row)).values
    return {**found, "rope_scaling": "none"}


@pytest.mark.parametrize(
    ("changed", "key", "value"),
    [
        ({"rope_theta": 500.0}, "rope.freq_base", 500.0),
        ({"value_dim": 3}, "attention.value_length", 3),
        ({"rope_scaling": "linear", "rope_factor": 2.0}, "rope.scaling.type", "linear"),
        ({"rope_scaling": "yarn", "rope_factor": 2.0}, "rope.scaling.type", "yarn"),
    ],
)
def test_keys_that_llama_cpp_reads_and_does_not_write(
    tmp_path: Path, changed: dict[str, Any], key: str, value: object
) -> None:
    values = fields(tmp_path)
    assert f"{ARCH}.{key}" not in written_keys(RECIPE, "gguf", values)
    assert written_keys(RECIPE, "gguf", values | changed)[f"{ARCH}.{key}"] == value
    notes = written_notes(RECIPE, "gguf", values | changed)
    assert any(f"as {ARCH}.{key}; llama.cpp's own converter leaves it out" in n for n in notes)


@pytest.mark.parametrize(
    "changed",
    [
        {"embed_scale": 11.0},
        {"query_latent_size": None},
        {"residual_scale": 1.0},
        {"logits_scale": 1.0},
        {"qkv_bias": True},
        {"o_bias": True},
        {"mlp_bias": True},
        {"rope_scaling": "dynamic", "rope_factor": 2.0},
        {"rope_scaling": "llama3", "rope_factor": 2.0},
        {"rope_scaling": "yarn", "rope_factor": 2.0, "rope_mscale_all_dim": 0.5},
    ],
)
def test_fields_that_gguf_cannot_say(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        written_keys(RECIPE, "gguf", fields(tmp_path) | changed)
    assert f"{[*changed][-1]} = " in str(caught.value) or "rope_scaling = " in str(caught.value)
