"""Configurations with the keys and values of published models: each passes as it is.

``published.json`` holds them, with the recipe and some of the fields that each must give.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.architectures import DecoderConfig, build
from maxtool.architectures.decoder_checks import problems
from maxtool.errors import ConfigurationError
from maxtool.recipe import (
    Recipe,
    ResolvedConfig,
    find_recipe,
    load_recipe,
    recipe_names,
    resolve_config,
    written_keys,
)
from maxtool.weights import open_checkpoint
from tests.data.seeded import unfolded

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "published.json").read_text()
)


def resolved(
    folder: Path,
    config: dict[str, Any],
    held: dict[str, list[int]] | None = None,
    floats: dict[str, list[int]] | None = None,
) -> tuple[Recipe, ResolvedConfig]:
    """The recipe and the fields of a configuration beside tensors, by name and shape.

    ``held`` are of bytes; ``floats`` say part of the configuration, by layer.
    """
    tensors = {name: np.full(shape, 127, np.uint8) for name, shape in (held or {}).items()}
    for name, shape in unfolded(floats or {}).items():
        tensors[name] = np.full(shape, 0.5, np.float32)
    tensors["x"] = np.zeros(1, np.float32)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(folder)
    recipe = find_recipe(checkpoint)
    return recipe, resolve_config(recipe, checkpoint)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_pass(tmp_path: Path, name: str) -> None:
    told = PUBLISHED[name]
    recipe, found = resolved(tmp_path, told["config"], told.get("bytes"), told.get("floats"))
    assert recipe.name == PUBLISHED[name]["recipe"]
    assert all("is unknown, and off" in note for note in found.notes)
    for field, value in PUBLISHED[name]["fields"].items():
        expected = tuple(value) if isinstance(value, list) else value
        assert found.values[field] == expected, field
    keys = written_keys(recipe, "gguf", found.values) if "gguf" in PUBLISHED[name] else {}
    for key, value in PUBLISHED[name].get("gguf", {}).items():
        assert keys.get(key) == value, key
    if recipe.architecture == "decoder":
        assert problems(DecoderConfig(**found.values)) == []
    else:
        assert build(recipe.architecture, found.values).context


def test_a_hybrid_without_experts_says_so(tmp_path: Path) -> None:
    """Write what transformers would fill in otherwise: eight experts."""
    recipe, found = resolved(tmp_path, PUBLISHED["granite-4.0-h-micro"]["config"])
    keys = written_keys(recipe, "hf", found.values)
    assert (keys["num_local_experts"], keys["num_experts_per_tok"]) == (0, 0)


def test_sizes_are_written_as_transformers_reads_them(tmp_path: Path) -> None:
    """Write the names that it has for them, and not mamba_ssm's, which are read too."""
    recipe, found = resolved(tmp_path, PUBLISHED["mamba-130m-hf"]["config"])
    keys = written_keys(recipe, "hf", found.values)
    sizes = keys["hidden_size"], keys["intermediate_size"], keys["num_hidden_layers"]
    assert sizes == (768, 1536, 24)
    assert not keys.keys() & {"d_model", "d_inner", "n_layer"}


@pytest.mark.parametrize(
    ("name", "other"), [("falcon-mamba-7b", "mamba"), ("mamba-2.8b-hf", "falcon_mamba")]
)
def test_another_recipe_that_is_asked_for_does_not_fit(
    name: str, other: str, tmp_path: Path
) -> None:
    recipe, found = resolved(tmp_path, PUBLISHED[name]["config"])
    file = (
        Path(__file__).resolve().parents[1]
        / "data"
        / "tiny-falcon-new"
        / "tiny-falcon-new-f32.gguf"
    )
    keys = written_keys(recipe, "gguf", found.values)
    checkpoint = dataclasses.replace(open_checkpoint(file), metadata=keys)
    with pytest.raises(ConfigurationError, match=r"ssm.dt_b_c_rms = \w+ is not supported"):
        resolve_config(load_recipe(other), checkpoint)


def test_every_decoder_is_in_the_documents_with_what_it_fits() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text()
    page = page.partition("## Encoders")[0]
    lines = [line for line in page.splitlines() if line.startswith("|") and "e-0" in line]
    rows = [line.strip("| ").split(" | ") for line in lines]
    names = [name for name in recipe_names() if not name.endswith("_halves")]  # of none published
    decoders = {name for name in names if load_recipe(name).architecture == "decoder"}
    assert {row[0].strip("`") for row in rows} == decoders
    for row in rows:
        published = [PUBLISHED[name]["recipe"] for name in row[-1].split(", ")]
        assert set(published) == {row[0].strip("`")}


UNSUPPORTED: list[tuple[str, dict[str, Any], str]] = [
    ("falcon-7b", {"alibi": True}, "alibi = True is not supported (False is)"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
    ("gpt2", {"scale_attn_weights": "no"}, "scale_attn_weights = 'no' is not true or false"),
    ("Qwen2.5-0.5B", {"use_sliding_window": 1}, "use_sliding_window = 1 is not true or false"),
    ("falcon-7b", {"new_decoder_architecture": "y"}, "'y' is not true or false (block)"),
    ("Qwen2.5-7B", {"is_causal": "no"}, "is_causal = 'no' is not true or false"),
    ("embeddinggemma-300m", {"is_causal": False}, "is_causal = False is not supported (True is)"),
    (
        "gpt2",
        {"activation_function": "prelu"},
        "activation_function: 'prelu' is not one of gelu, gelu_10",
    ),
    ("gpt2", {"n_ctx": 512}, "n_ctx = 512 disagrees with n_positions = 1024"),
    ("Llama-3.1-8B", {"hidden_act": "prelu"}, "hidden_act: 'prelu' is not one of gelu, gelu_10"),
    ("Llama-3.1-8B", {"rope_scaling": {"rope_type": "mrope"}}, "'mrope' is not supported"),
    ("Qwen2.5-0.5B", {"use_mrope": True}, "use_mrope = True is not supported"),
    (
        "Qwen2.5-7B",
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        "quantization_config = {'quant_method': 'gptq', 'bits': 4} is not supported",
    ),
    (
        "gemma-2-2b",
        {"use_bidirectional_attention": True},
        "use_bidirectional_attention = True is not supported",
    ),
    (
        "gemma-3-1b",
        {"layer_types": ["chunked_attention"] * 26},
        "is not a list of flags (sliding_layers)",
    ),
    ("Phi-3-mini-4k", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not supp"),
    ("Phi-4-mini", {"interpolate_factor": 2}, "interpolate_factor = 2 is not supported"),
    ("starcoder2-3b", {"norm_type": "rms_norm"}, "norm_type = 'rms_norm' is not supported"),
    ("Qwen3-30B-A3B", {"mlp_only_layers": 0}, ": 0 is not a list of numbers of layers"),
    ("gemma-2-27b", {"query_pre_attn_scalar": None}, "query_pre_attn_scalar is missing"),
    ("gemma-3-1b", {"query_pre_attn_scalar": None}, "query_pre_attn_scalar is missing"),
    ("gemma-3-1b", {"sliding_window_pattern": None}, "sliding_window_pattern is missing"),
    ("SmolLM3-3B", {"no_rope_layers": [1, 0]}, "one flag for each of 36 layers, but of 2"),
    ("Qwen3-30B-A3B", {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size = "),
]


@pytest.mark.parametrize(("name", "changes", "problem"), UNSUPPORTED)
def test_values_that_are_not_supported(
    tmp_path: Path, name: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolved(tmp_path, PUBLISHED[name]["config"] | changes)
    assert problem in str(caught.value)


YARN = {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192}
SUPPORTED: list[tuple[str, dict[str, Any], str, object]] = [
    ("gpt2", {"scale_attn_weights": False}, "attention_scale", 1.0),
    ("gpt2", {"scale_attn_weights": True}, "attention_scale", None),
    ("Mistral-7B-v0.1", {"rope_scaling": YARN | {"finetuned": True}}, "rope_factor", 16.0),
    ("Qwen2.5-7B", {"is_causal": True}, "bidirectional", False),
    ("Qwen2.5-7B", {"is_causal": False}, "bidirectional", True),
    # Transformers completes what is null as what is missing, here.
    ("falcon-40b", {"num_kv_heads": None}, "n_kv_heads", 128),
    ("gemma-2-27b", {"layer_types": None}, "sliding_layers", (True, False) * 23),
]


@pytest.mark.parametrize(("name", "changes", "field", "value"), SUPPORTED)
def test_values_that_published_models_do_not_have(
    tmp_path: Path, name: str, changes: dict[str, Any], field: str, value: object
) -> None:
    _, found = resolved(tmp_path, PUBLISHED[name]["config"] | changes)
    assert found.values[field] == value
    assert problems(DecoderConfig(**found.values)) == []


def test_scores_that_are_not_scaled_have_no_key_in_gguf(tmp_path: Path) -> None:
    config = PUBLISHED["gpt2"]["config"] | {"scale_attn_weights": False}
    recipe, found = resolved(tmp_path, config)
    assert written_keys(recipe, "hf", found.values)["scale_attn_weights"] is False
    with pytest.raises(ConfigurationError, match=r"attention_scale = 1\.0 has no spelling in gguf"):
        written_keys(recipe, "gguf", found.values)
