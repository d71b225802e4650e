"""XGLM's files: with tables of waves, with a head of their own, and without a prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.errors import ModelMismatch
from maxtool.recipe import Plan, find_recipe, plan
from maxtool.weights import open_checkpoint
from tests.variants.rows import Files, rows

Tensors = dict[str, np.ndarray[Any, Any]]
WAVES = "model.embed_positions.weights"


def planned(folder: Path, *, tied: bool) -> tuple[Path, Tensors]:
    """A recorded model, and its tensors."""
    row = next(row for row in rows("xglm") if row.config["tie_word_embeddings"] is tied)
    checkpoint = Files(folder).checkpoint(row)
    return checkpoint.path, dict(load_file(checkpoint.path / "model.safetensors"))


def read(folder: Path, tensors: Tensors) -> Plan:
    save_file(tensors, folder / "model.safetensors")
    checkpoint = open_checkpoint(folder)
    made = plan(find_recipe(checkpoint), checkpoint)
    made.check()
    return made


def test_waves_that_a_file_has_are_computed(tmp_path: Path) -> None:
    folder, tensors = planned(tmp_path, tied=True)
    made = read(folder, {**tensors, WAVES: np.zeros((3, 2), np.float32)})
    assert made.dropped == [WAVES]


def test_a_tied_head_must_be_the_embedding(tmp_path: Path) -> None:
    folder, tensors = planned(tmp_path, tied=True)
    head = tensors["model.embed_tokens.weight"]
    assert read(folder, {**tensors, "lm_head.weight": head}).duplicates
    with pytest.raises(ModelMismatch, match="differs from model"):
        read(folder, {**tensors, "lm_head.weight": head + 1})


def test_names_of_the_model_alone(tmp_path: Path) -> None:
    folder, tensors = planned(tmp_path, tied=False)
    tensors[WAVES] = np.zeros((3, 2), np.float32)
    bare = {name.removeprefix("model."): array for name, array in tensors.items()}
    assert read(folder, bare).parameters.keys() == read(folder, tensors).parameters.keys()
