"""Graphs of decoders in float64 against what transformers recorded, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.errors import ConfigurationError, MisshapenWeight, MissingWeight, ModelMismatch
from maxtool.weights.checkpoint import open_checkpoint
from tests.parity.measure import (
    DATA,
    FOLDERS,
    RECORDING_ERROR,
    edited,
    error,
    greedy,
    logits,
    recorded,
)
from tests.parity.traced import TracedModel

NEWER = tuple(name for name in FOLDERS if (DATA / name / "config.newer.json").exists())


@pytest.mark.parametrize("name", FOLDERS)
def test_logits_are_those_of_transformers(name: str) -> None:
    expected = recorded(DATA / name)
    found = logits(DATA / name, expected["input_ids"])
    assert found.dtype == np.float64
    assert error(found, expected["logits"]) < RECORDING_ERROR


@pytest.mark.parametrize("name", FOLDERS)
def test_greedy_continuation_is_that_of_transformers(name: str) -> None:
    expected = recorded(DATA / name)
    tokens = expected["greedy_tokens"]
    np.testing.assert_array_equal(greedy(DATA / name, expected["greedy_prompt"], tokens), tokens)


@pytest.mark.parametrize("name", NEWER)
def test_both_spellings_say_the_same(name: str) -> None:
    folder = DATA / name
    ids = recorded(folder)["input_ids"]
    newer = logits(folder, ids, folder / "config.newer.json")
    np.testing.assert_array_equal(newer, logits(folder, ids))


def test_falcon_under_its_first_name(tmp_path: Path) -> None:
    config = json.loads((DATA / "tiny-falcon" / "config.json").read_text())
    renamed = {"hidden_size": "n_embed", "num_hidden_layers": "n_layer"}
    renamed |= {"num_attention_heads": "n_head", "num_kv_heads": "n_head_kv"}
    first = {renamed.get(key, key): value for key, value in config.items()}
    first |= {"model_type": "RefinedWebModel", "architectures": ["RWForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(first))
    ids = recorded(DATA / "tiny-falcon")["input_ids"]
    found = logits(DATA / "tiny-falcon", ids, tmp_path / "config.json")
    np.testing.assert_array_equal(found, logits(DATA / "tiny-falcon", ids))


@pytest.mark.parametrize("name", ["tiny-mistral", "tiny-dynamic", "tiny-qwen3-moe"])
def test_a_batch_is_its_rows(name: str) -> None:
    ids = np.random.default_rng(0).integers(0, 61, (3, 20))
    together = logits(DATA / name, ids)
    rows = [logits(DATA / name, row[None])[0] for row in ids]
    np.testing.assert_allclose(together, rows, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted({*FOLDERS} - {"tiny-dynamic", "tiny-phi3-longrope"}))
def test_calls_with_a_cache_are_the_whole_sequence(name: str) -> None:
    expected = recorded(DATA / name)
    found = TracedModel(open_checkpoint(DATA / name))
    cached = found.cached(expected["input_ids"], [0, 5, 11])
    assert error(cached, expected["logits"][:, [4, 10, -1]]) < 2 * RECORDING_ERROR


@pytest.mark.parametrize(("name", "original"), [("tiny-dynamic", 16), ("tiny-phi3-longrope", 16)])
def test_a_length_counts_beyond_the_original_context_only(name: str, original: int) -> None:
    ids = recorded(DATA / name)["input_ids"]
    found = TracedModel(open_checkpoint(DATA / name))
    starts = [0, 4, original]
    short = found.forward(ids[:, :original])
    cached = found.cached(ids[:, : original + 4], starts)
    np.testing.assert_allclose(cached[:, :2], short[:, [3, -1]], rtol=1e-12, atol=1e-12)
    whole = found.forward(ids[:, : original + 4])
    assert error(cached[:, 2], whole[:, -1]) > 1e-3


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("tiny-llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    ("tiny-llama", {"rms_norm_eps": 1e-3}),
    ("tiny-llama-tied", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("tiny-llama-tied", {"rope_scaling": None}),
    ("tiny-mistral", {"sliding_window": 8}),
    ("tiny-mistral", {"sliding_window": None}),
    ("tiny-dynamic", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("tiny-dynamic", {"max_position_embeddings": 24}),
    ("tiny-mixtral", {"num_experts_per_tok": 1}),
    ("tiny-mixtral", {"rope_theta": None, "hidden_act": "gelu"}),
    ("tiny-mixtral", {"sliding_window": 5}),
    ("tiny-qwen2", {"max_window_layers": 2}),
    ("tiny-qwen2", {"use_sliding_window": False}),
    ("tiny-qwen2", {"layer_types": ["full_attention"] * 3}),
    ("tiny-qwen3-moe", {"norm_topk_prob": False}),
    ("tiny-qwen3-moe", {"num_experts_per_tok": 3}),
    ("tiny-qwen3-moe", {"use_sliding_window": True, "sliding_window": 5}),
    ("tiny-gemma2", {"query_pre_attn_scalar": 12}),
    ("tiny-gemma2", {"attn_logit_softcapping": 3.0}),
    ("tiny-gemma2", {"final_logit_softcapping": None}),
    ("tiny-gemma2", {"hidden_activation": "gelu"}),
    ("tiny-gemma2", {"sliding_window": 6}),
    ("tiny-gemma3", {"sliding_window_pattern": 2}),
    ("tiny-gemma3", {"rope_local_base_freq": 5000.0}),
    ("tiny-gemma3", {"rope_scaling": None}),
    ("tiny-gemma3", {"final_logit_softcapping": 3.0}),
    ("tiny-phi3", {"sliding_window": None}),
    ("tiny-phi3-longrope", {"original_max_position_embeddings": 40}),
    ("tiny-phi3-longrope", {"max_position_embeddings": 128}),
    ("tiny-gpt2", {"activation_function": "relu"}),
    ("tiny-gpt2", {"scale_attn_weights": False}),
    ("tiny-gpt-neox", {"use_parallel_residual": False}),
    ("tiny-gpt-neox", {"rotary_pct": 0.25}),
    ("tiny-gpt-neox", {"rotary_emb_base": 5000}),
    ("tiny-starcoder2", {"sliding_window": None}),
    ("tiny-olmo2", {"rope_theta": 10000.0}),
    ("tiny-granite", {"attention_multiplier": 0.25}),
    ("tiny-granite", {"embedding_multiplier": 5.0}),
    ("tiny-granite", {"logits_scaling": 5.0}),
    ("tiny-granite", {"residual_multiplier": 0.5}),
    ("tiny-smollm3", {"no_rope_layers": [1, 1, 0, 1]}),
    ("tiny-smollm3", {"use_sliding_window": True, "sliding_window": 5, "layer_types": None}),
    ("tiny-falcon", {"activation": "relu"}),
    ("tiny-llama3", {"rope_scaling": None}),
    ("tiny-yarn", {"rope_scaling": None}),
]


@pytest.mark.parametrize(
    ("name", "changes"), OPTIONS, ids=[f"{name}-{'-'.join(keys)}" for name, keys in OPTIONS]
)
def test_every_option_counts(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    expected = recorded(DATA / name)
    config = json.loads((DATA / name / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = logits(DATA / name, expected["input_ids"], tmp_path / "config.json")
    assert error(found, expected["logits"]) > 1e-4


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tiny-llama3", {"factor": 4.0}),
        ("tiny-llama3", {"low_freq_factor": 2.0}),
        ("tiny-llama3", {"high_freq_factor": 8.0}),
        ("tiny-llama3", {"original_max_position_embeddings": 64}),
        ("tiny-yarn", {"factor": 8.0}),
        ("tiny-yarn", {"beta_fast": 1.5}),
        ("tiny-yarn", {"beta_slow": 0.25}),
        ("tiny-yarn", {"truncate": False}),
        ("tiny-yarn", {"attention_factor": 1.3}),
        ("tiny-yarn", {"mscale": 2.0, "mscale_all_dim": 1.0}),
        ("tiny-yarn", {"original_max_position_embeddings": 64}),
        ("tiny-phi3-longrope", {"attention_factor": 1.5}),
        ("tiny-phi3-longrope", {"factor": 8.0}),
        ("tiny-phi3-longrope", {"long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0]}),
    ],
)
def test_every_option_of_a_scaling_counts(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    expected = recorded(DATA / name)
    config = json.loads((DATA / name / "config.json").read_text())
    config["rope_scaling"] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = logits(DATA / name, expected["input_ids"], tmp_path / "config.json")
    assert error(found, expected["logits"]) > 1e-4


def test_an_absent_window_is_mistrals_default_and_null_is_none(tmp_path: Path) -> None:
    ids = recorded(DATA / "tiny-mistral")["input_ids"]
    absent = edited(DATA / "tiny-mistral", tmp_path / "absent", sliding_window=None)
    null = edited(DATA / "tiny-mistral", tmp_path / "null")
    config = json.loads((null / "config.json").read_text()) | {"sliding_window": None}
    (null / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(logits(absent, ids), logits(null, ids))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("tiny-llama", {"hidden_act": "prelu"}, ["hidden_act", "silu"]),
        ("tiny-llama", {"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ("tiny-llama", {"hidden_size": "40", "vocab_size": 0}, ["hidden_size", "vocab_size"]),
        (
            "tiny-llama",
            {"rms_norm_eps": float("nan"), "vocab_size": True},
            ["rms_norm_eps", "vocab_size"],
        ),
        ("tiny-llama", {"rope_parameters": {"rope_type": "linear"}}, ["factor"]),
        ("tiny-llama", {"rope_parameters": {"rope_type": "axial"}}, ["axial", "yarn"]),
        ("tiny-llama", {"rope_parameters": {"rope_type": ["linear"]}}, ["rope_type"]),
        ("tiny-llama", {"rope_parameters": [1]}, ["rope_parameters"]),
        ("tiny-llama", {"partial_rotary_factor": 0.5}, ["partial_rotary_factor"]),
        ("tiny-llama", {"num_key_value_heads": 3}, ["not a multiple of n_kv_heads"]),
        ("tiny-llama", {"head_dim": 11}, ["11"]),
        ("tiny-llama", {"num_hidden_layers": 10**12}, ["layers"]),
        ("tiny-llama", {"num_attention_heads": None}, ["num_attention_heads is missing"]),
        ("tiny-yarn", {"rope_theta": 1.0}, ["rope_theta above 1"]),
        ("tiny-mixtral", {"num_experts_per_tok": 6}, ["n_experts_used 6 is more than"]),
        ("tiny-mixtral", {"num_local_experts": "all"}, ["num_local_experts = 'all'"]),
        ("tiny-qwen3-moe", {"mlp_only_layers": 3}, ["mlp_only_layers"]),
        ("tiny-qwen2", {"layer_types": ["full_attention"]}, ["layer_types"]),
        ("tiny-gemma2", {"use_bidirectional_attention": True}, ["use_bidirectional_attention"]),
        ("tiny-gemma3", {"attn_logit_softcapping": 50.0}, ["attn_logit_softcapping"]),
        ("tiny-phi3", {"attention_bias": True}, ["attention_bias"]),
        ("tiny-phi3-longrope", {"partial_rotary_factor": 0.5}, ["short_factor", "long_factor"]),
        ("tiny-phi3-longrope", {"partial_rotary_factor": 1.5}, ["more than head_dim"]),
        ("tiny-gpt2", {"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse"]),
        ("tiny-falcon", {"alibi": True}, ["alibi"]),
    ],
)
def test_a_wrong_configuration_is_refused(
    name: str, changes: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    folder = edited(DATA / name, tmp_path, **changes)
    with pytest.raises(ConfigurationError) as caught:
        logits(folder, np.zeros((1, 1), np.int64))
    assert all(word in str(caught.value) for word in words)
    assert "config.json" in str(caught.value)


def test_tensors_without_a_configuration(tmp_path: Path) -> None:
    shutil.copy(DATA / "tiny-llama" / "model.safetensors", tmp_path)
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        logits(tmp_path / "model.safetensors", np.zeros((1, 1), np.int64))


def test_what_does_not_fit_the_tensors_is_refused() -> None:
    """Another model than the configuration says: heads, biases and tables that nothing uses."""
    for name, changes in (
        ("tiny-llama", {"tie_word_embeddings": True}),
        ("tiny-llama-tied", {"attention_bias": False}),
        ("tiny-llama-tied", {"mlp_bias": False}),
        ("tiny-starcoder2", {"use_bias": False}),
    ):
        checkpoint = open_checkpoint(DATA / name)
        config = {**(checkpoint.config or {}), **changes}
        with pytest.raises(ModelMismatch, match="the tensors do not fit"):
            TracedModel(replace(checkpoint, config=config))


def test_all_missing_tensors_are_listed(tmp_path: Path) -> None:
    folder = edited(DATA / "tiny-llama", tmp_path, num_hidden_layers=3, attention_bias=True)
    with pytest.raises(MissingWeight) as caught:
        logits(folder, np.zeros((1, 1), np.int64))
    assert len(caught.value.problems) == 9 + 4, "biases of all layers are a line each"


def test_all_misshapen_tensors_are_listed(tmp_path: Path) -> None:
    folder = edited(DATA / "tiny-llama", tmp_path, intermediate_size=99)
    with pytest.raises(MisshapenWeight) as caught:
        logits(folder, np.zeros((1, 1), np.int64))
    assert len(caught.value.problems) == 3
    assert "needs [99, 40], found [100, 40]" in caught.value.problems[0]
