"""EuroBERT's files as they are published, and what is refused of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError, MaxtoolError
from maxtool.recipe import find_recipe, plan, resolve_config, written_keys
from maxtool.weights import Checkpoint, open_checkpoint
from tests.artifact.test_decoder_embeddings import modules
from tests.data.seeded import tensors
from tests.variants.rows import rows


def published(folder: Path, *further: str, **change: object) -> Checkpoint:
    """The first recorded model, whose tensors have the names of a model with a head."""
    row = next(rows("eurobert"))
    named = {f"model.{name}": each for name, each in tensors(row.shapes, row.norm).items()}
    named |= {name: np.zeros((2, 3), np.float32) for name in further}
    save_file(named, folder / "model.safetensors")
    config: dict[str, Any] = {**row.config, **change}
    (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder)


def test_a_head_for_words_is_left_out(tmp_path: Path) -> None:
    checkpoint = published(tmp_path, "lm_head.weight", "lm_head.bias")
    plan(find_recipe(checkpoint), checkpoint).check()


def test_a_head_for_labels_is_refused(tmp_path: Path) -> None:
    checkpoint = published(tmp_path, "classifier.weight")
    with pytest.raises(MaxtoolError) as told:
        plan(find_recipe(checkpoint), checkpoint).check()
    assert any("heads for labels are not supported" in line for line in told.value.problems)


def test_scaled_positions_have_no_form_in_gguf(tmp_path: Path) -> None:
    table = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    checkpoint = published(tmp_path, rope_parameters=table)
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    with pytest.raises(ConfigurationError) as told:
        written_keys(recipe, "gguf", values)
    assert any("rope_scaling" in line for line in told.value.problems)
    keys = written_keys(recipe, "gguf", {**values, "rope_scaling": "none", "pooling": "mean"})
    assert [*keys][-2:] == ["eurobert.rope.scaling.type", "eurobert.pooling_type"]


@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_of_length_one(tmp_path: Path, *, normalize: bool) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    bare = published(folder)
    assert not resolve_config(find_recipe(bare), bare).values["normalize"]
    modules(folder, "mean", normalize=normalize)
    convert(prepare(Request(folder, tmp_path / "model.gguf", name="x")))
    # GGUF has no key for it, and llama.cpp's tools always do it.
    for path, wanted in ((folder, normalize), (tmp_path / "model.gguf", True)):
        checkpoint = open_checkpoint(path)
        values = resolve_config(find_recipe(checkpoint), checkpoint).values
        assert (values["pooling"], values["normalize"]) == ("mean", wanted)


def test_biases_of_mlps_have_no_form_in_gguf(tmp_path: Path) -> None:
    checkpoint = published(tmp_path, mlp_bias=True)
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    with pytest.raises(ConfigurationError) as told:
        written_keys(recipe, "gguf", values)
    assert any("mlp_bias = True has no spelling" in line for line in told.value.problems)
