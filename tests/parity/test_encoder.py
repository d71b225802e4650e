"""The float64 reference of encoders beside what transformers recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.errors import ConfigurationError, MisshapenWeight, MissingWeight
from maxtool.parity.references import EmbeddingReference, reference
from maxtool.weights.checkpoint import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = ("tiny-bert", "tiny-roberta", "tiny-distilbert", "tiny-nomic-bert")
OUTPUTS = ("last_hidden_state", "pooler_output")


def relative(actual: Any, expected: Any) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def assert_recorded(folder: Path) -> None:
    with np.load(folder / "expected.npz") as arrays:
        expected = dict(arrays)
    found = reference(open_checkpoint(folder)).forward(expected)
    assert set(found) == set(OUTPUTS) & set(expected)
    for name, array in found.items():
        assert array.dtype == np.float64
        assert relative(array, expected[name]) < 1e-6, name


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


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooling_sees_no_padding(pooling: str) -> None:
    found = reference(open_checkpoint(DATA / "tiny-distilbert"))
    assert isinstance(found, EmbeddingReference)
    ids, mask = np.array([[5, 6, 7], [8, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0]])
    both = found.embed({"input_ids": ids, "attention_mask": mask}, pooling, normalize=True)
    alone = {"input_ids": ids[1:, :1], "attention_mask": mask[1:, :1]}
    np.testing.assert_allclose(both[1:], found.embed(alone, pooling, normalize=True), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish', not one of"),
        ({"num_hidden_layers": 10**6}, "1000000 layers are more than the tensors can make"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide', not a positive integer"),
    ],
)
def test_what_it_does_not_know(copy: Path, changes: dict[str, Any], problem: str) -> None:
    edit(copy, **changes)
    with pytest.raises(ConfigurationError) as error:
        reference(open_checkpoint(copy))
    assert any(problem in found for found in error.value.problems)


def test_tensors_that_are_missing_or_misshapen(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    lost = weights.pop("bert.embeddings.LayerNorm.beta")
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(MissingWeight) as missing:
        reference(open_checkpoint(copy))
    assert missing.value.problems == ("bert.embeddings.LayerNorm.bias",)
    save_file(weights | {"bert.embeddings.LayerNorm.beta": lost[:3]}, copy / "model.safetensors")
    with pytest.raises(MisshapenWeight, match=r"has shape \[3\], not \[20\]"):
        reference(open_checkpoint(copy))
