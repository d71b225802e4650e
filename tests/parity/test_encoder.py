"""Graphs of encoders in float64 beside what transformers recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.errors import ConfigurationError, MisshapenWeight, MissingWeight
from maxtool.weights.checkpoint import open_checkpoint
from tests.artifact.measure import error
from tests.parity.traced import TracedModel

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = ("tiny-bert", "tiny-roberta", "tiny-distilbert", "tiny-nomic-bert")
OUTPUTS = ("last_hidden_state", "pooler_output")


def taken(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of encoders, types of tokens being 0 where none are recorded."""
    types = np.zeros_like(arrays["input_ids"])
    return {"token_type_ids": types} | arrays


def assert_recorded(folder: Path) -> None:
    with np.load(folder / "expected.npz") as arrays:
        expected = dict(arrays)
    found = TracedModel(open_checkpoint(folder)).run("forward", taken(expected))
    assert set(found) == set(OUTPUTS) & set(expected)
    for name, array in found.items():
        assert array.dtype == np.float64
        assert error(array, expected[name]) < 1e-6, name


@pytest.mark.parametrize("name", TINY)
def test_recorded_hidden_states_padding_included(name: str) -> None:
    assert_recorded(DATA / name)


@pytest.mark.reference
def test_reference_checkpoint(reference: Path) -> None:
    assert_recorded(reference / "bert")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(DATA / "tiny-bert", folder)
    return folder


def edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def test_the_newer_spelling(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(DATA / "tiny-nomic-bert", folder)
    (folder / "config.newer.json").replace(folder / "config.json")
    assert_recorded(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"position_embedding_type": "relative_key"}, "= 'relative_key' is not supported"),
        ({"is_decoder": True}, "is_decoder = True is not supported"),
        ({"hidden_act": "prelu"}, "hidden_act: 'prelu' is not one of gelu, gelu_10"),
        ({"num_hidden_layers": 10**6}, "has 1000000 layers and the file only 41 tensors"),
        ({"hidden_size": "wide"}, "hidden_size = 'wide' is not a positive integer"),
    ],
)
def test_what_it_does_not_know(copy: Path, changes: dict[str, Any], problem: str) -> None:
    edit(copy, **changes)
    with pytest.raises(ConfigurationError) as error:
        TracedModel(open_checkpoint(copy))
    assert problem in str(error.value)


def test_tensors_that_are_missing_or_misshapen(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    lost = weights.pop("bert.embeddings.LayerNorm.beta")
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(MissingWeight) as missing:
        TracedModel(open_checkpoint(copy))
    (problem,) = missing.value.problems
    assert "embeddings.LayerNorm.bias [20]" in problem
    save_file(weights | {"bert.embeddings.LayerNorm.beta": lost[:3]}, copy / "model.safetensors")
    with pytest.raises(MisshapenWeight, match=r"needs \[20\], found \[3\]"):
        TracedModel(open_checkpoint(copy))
