"""Norms of latents: transformers keeps their epsilon, and GGUF has one for all norms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.recipe import load_recipe, resolve_config, written_keys, written_notes
from tests.data.random_latent_families import LATENT_GRANTED
from tests.parity import folders
from tests.variants.rows import Files, rows

EPS = {"rms_norm_eps": 1e-5}


@pytest.mark.parametrize("family", ["glm4_moe_lite", "kimi_linear", "minicpm3"])
def test_an_epsilon_of_all_norms_is_written_for_transformers(family: str, tmp_path: Path) -> None:
    """Write back what was published with 1e-5 beside 1e-6, as GLM-4.7-Flash and MiniCPM3."""
    row = next(row for row in rows(family) if row.expected is not None)
    values = dict(resolve_config(load_recipe(family), Files(tmp_path).checkpoint(row)).values)
    values |= {"norm_eps": 1e-5, "latent_eps": 1e-5}
    recipe = load_recipe(family)
    assert written_keys(recipe, "hf", values)["rms_norm_eps"] == 1e-5
    (note,) = [note for note in written_notes(recipe, "hf", values) if "latent_eps" in note]
    assert note.startswith("latent_eps = 1e-05 is not written: transformers has 1e-06")
    usual = written_notes(recipe, "hf", values | {"latent_eps": 1e-6})
    assert not [note for note in usual if "latent_eps" in note]


def test_there_and_back(tmp_path: Path) -> None:
    row = next(row for row in rows("minicpm3") if row.expected is not None)
    config = row.config | LATENT_GRANTED["minicpm3"] | EPS | {"model_type": "minicpm3"}
    folders.write(tmp_path / "folder", config, 0)
    convert(prepare(Request(tmp_path / "folder", tmp_path / "model.gguf")))
    convert(prepare(Request(tmp_path / "model.gguf", tmp_path / "back")))
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert written["rms_norm_eps"] == 1e-5
