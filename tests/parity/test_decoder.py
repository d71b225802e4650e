"""The float64 reference against what transformers recorded, and against its own inputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.errors import ConfigurationError, MisshapenWeight, MissingWeight, UsageError
from maxtool.parity.decoder import reference_logits
from maxtool.weights.checkpoint import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = ("tiny-llama", "tiny-llama-tied", "tiny-mistral")
RECORDING_ERROR = 1e-6
"""What float32 arithmetic in transformers adds to the recorded logits, relatively."""


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def logits(path: Path, ids: np.ndarray, config: Path | None = None) -> np.ndarray:
    return reference_logits(open_checkpoint(path, config=config), ids)


def edited(folder: Path, tmp_path: Path, **changes: object) -> Path:
    """A copy of a Hugging Face folder with other configuration keys; None removes one."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text()) | changes
    kept = {key: value for key, value in config.items() if changes.get(key, 0) is not None}
    (copy / "config.json").write_text(json.dumps(kept))
    return copy


@pytest.mark.parametrize("name", TINY)
def test_logits_are_those_of_transformers(name: str) -> None:
    expected = np.load(DATA / name / "expected.npz")
    found = logits(DATA / name, expected["input_ids"])
    assert found.dtype == np.float64
    assert relative_error(found, expected["logits"]) < RECORDING_ERROR


@pytest.mark.parametrize("name", TINY)
def test_greedy_continuation_is_that_of_transformers(name: str) -> None:
    expected = np.load(DATA / name / "expected.npz")
    ids = np.concatenate([expected["greedy_prompt"], expected["greedy_tokens"]], axis=1)
    found = logits(DATA / name, ids)[:, :-1].argmax(-1)
    prompt = expected["greedy_prompt"].shape[1]
    np.testing.assert_array_equal(found[:, prompt - 1 :], expected["greedy_tokens"])


def test_a_batch_is_its_rows() -> None:
    ids = np.random.default_rng(0).integers(0, 97, (3, 11))
    together = logits(DATA / "tiny-mistral", ids)
    rows = [logits(DATA / "tiny-mistral", row[None])[0] for row in ids]
    np.testing.assert_allclose(together, rows, rtol=1e-12, atol=1e-12)


def test_both_spellings_say_the_same(tmp_path: Path) -> None:
    newer = edited(
        DATA / "tiny-llama-tied",
        tmp_path,
        rope_scaling=None,
        rope_theta=None,
        torch_dtype=None,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    )
    ids = np.load(newer / "expected.npz")["input_ids"]
    np.testing.assert_array_equal(logits(newer, ids), logits(DATA / "tiny-llama-tied", ids))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tiny-llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
        ("tiny-llama", {"rms_norm_eps": 1e-3}),
        ("tiny-llama", {"tie_word_embeddings": True}),
        ("tiny-llama-tied", {"attention_bias": False}),
        ("tiny-llama-tied", {"mlp_bias": False}),
        ("tiny-llama-tied", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        ("tiny-llama-tied", {"rope_scaling": None}),
        ("tiny-mistral", {"sliding_window": 8}),
        ("tiny-mistral", {"sliding_window": None}),
    ],
)
def test_every_option_counts(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    expected = np.load(DATA / name / "expected.npz")
    found = logits(edited(DATA / name, tmp_path, **changes), expected["input_ids"])
    assert relative_error(found, expected["logits"]) > 1e-3


def test_an_absent_window_is_mistrals_default_and_null_is_none(tmp_path: Path) -> None:
    ids = np.load(DATA / "tiny-mistral" / "expected.npz")["input_ids"]
    absent = edited(DATA / "tiny-mistral", tmp_path / "absent", sliding_window=None)
    null = edited(DATA / "tiny-mistral", tmp_path / "null")
    config = json.loads((null / "config.json").read_text()) | {"sliding_window": None}
    (null / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(logits(absent, ids), logits(null, ids))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "qwen2"}, ["qwen2", "llama and mistral"]),
        ({"model_type": None}, ["None"]),
        ({"hidden_act": "gelu"}, ["hidden_act"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"hidden_size": "40", "num_hidden_layers": 0}, ["hidden_size", "num_hidden_layers"]),
        ({"rms_norm_eps": float("nan"), "vocab_size": True}, ["rms_norm_eps", "vocab_size"]),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, ["llama3"]),
        ({"rope_parameters": {"rope_type": "linear"}}, ["factor"]),
        ({"rope_parameters": [1]}, ["rope_parameters"]),
        ({"num_key_value_heads": 3}, ["evenly"]),
        ({"head_dim": 11}, ["11"]),
        ({"num_hidden_layers": 10**12}, ["layers"]),
        ({"num_attention_heads": None}, ["num_attention_heads is missing"]),
    ],
)
def test_a_wrong_configuration_is_refused(
    changes: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    folder = edited(DATA / "tiny-llama", tmp_path, **changes)
    with pytest.raises(ConfigurationError) as caught:
        logits(folder, np.zeros((1, 1), np.int64))
    assert all(word in str(caught.value) for word in words)
    assert "config.json" in str(caught.value)


def test_tensors_without_a_configuration(tmp_path: Path) -> None:
    shutil.copy(DATA / "tiny-llama" / "model.safetensors", tmp_path)
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        logits(tmp_path / "model.safetensors", np.zeros((1, 1), np.int64))


def test_all_missing_tensors_are_listed(tmp_path: Path) -> None:
    folder = edited(DATA / "tiny-llama", tmp_path, num_hidden_layers=3, attention_bias=True)
    with pytest.raises(MissingWeight) as caught:
        logits(folder, np.zeros((1, 1), np.int64))
    assert len(caught.value.problems) == 9 + 3 * 4


def test_all_misshapen_tensors_are_listed(tmp_path: Path) -> None:
    folder = edited(DATA / "tiny-llama", tmp_path, intermediate_size=99)
    with pytest.raises(MisshapenWeight) as caught:
        logits(folder, np.zeros((1, 1), np.int64))
    assert len(caught.value.problems) == 2 * 3
    assert "[100, 40], not [99, 40]" in caught.value.problems[0]


@pytest.mark.parametrize(
    "ids",
    [
        np.zeros(4, np.int64),
        np.zeros((1, 4)),
        np.zeros((1, 0), np.int64),
        np.array([[0, 97]]),
        np.array([[-1]]),
    ],
)
def test_ids_must_be_a_matrix_of_tokens(ids: np.ndarray) -> None:
    with pytest.raises(UsageError, match="token ids"):
        logits(DATA / "tiny-llama", ids)
