"""Laguna: windows and rotation of each kind of layer, names of experts, files of either kind."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.architectures import DecoderConfig
from maxtool.architectures.decoder_checks import problems
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from maxtool.recipe import (
    find_recipe,
    load_recipe,
    plan,
    resolve_config,
    written_keys,
    written_notes,
)
from maxtool.weights import Checkpoint, open_checkpoint
from tests.recipe.test_published import PUBLISHED, resolved
from tests.variants.rows import Files, Row, rows

CONFIG = PUBLISHED["Laguna-XS.2"]["config"]
TABLES = CONFIG["rope_parameters"]


def values(folder: Path, **changed: Any) -> dict[str, Any]:
    """The fields of the published configuration with some keys changed."""
    return resolved(folder, {**CONFIG, **changed})[1].values


def recorded() -> Row:
    """A recorded model with windows and experts in all layers but the first."""
    kinds = ["full_attention", *["sliding_attention"] * 3]
    return next(
        row
        for row in rows("laguna")
        if row.config["layer_types"] == kinds and "model.layers.0.mlp.up_proj.weight" in row.shapes
    )


def test_windows_without_a_width(tmp_path: Path) -> None:
    """Refuse them: layers that have them would be rotated as others are."""
    found = DecoderConfig(**values(tmp_path, sliding_window=0))
    assert problems(found) == ["sliding_layers without a sliding_window"]


def test_the_scaling_of_layers_with_a_window(tmp_path: Path) -> None:
    scaled = {**TABLES, "sliding_attention": {**TABLES["sliding_attention"], "rope_type": "yarn"}}
    with pytest.raises(ConfigurationError, match=r"sliding_attention\.rope_type = 'yarn'"):
        values(tmp_path, rope_parameters=scaled)
    written = written_keys(load_recipe("laguna"), "hf", values(tmp_path))
    assert written["rope_parameters.sliding_attention.rope_type"] == "default"


@pytest.mark.parametrize("said", [{}, {"original_max_position_embeddings": 4096}])
def test_dynamic_scaling_starts_at_the_whole_context(said: dict[str, int], tmp_path: Path) -> None:
    own = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0, **said}
    tables = {"full_attention": own, "sliding_attention": TABLES["sliding_attention"]}
    assert values(tmp_path, rope_parameters=tables)["rope_original_context"] == 131072


def test_a_context_of_yarn_for_all_layers(tmp_path: Path) -> None:
    outer = {"original_max_position_embeddings": 4096}
    inner = dict(TABLES["full_attention"])
    del inner["original_max_position_embeddings"]
    found = values(tmp_path, rope_parameters={**TABLES, "full_attention": inner, **outer})
    assert found["rope_original_context"] == 4096
    written = written_keys(load_recipe("laguna"), "hf", found)
    assert written["rope_parameters.full_attention.original_max_position_embeddings"] == 4096
    outer["original_max_position_embeddings"] = 2048
    with pytest.raises(ConfigurationError, match="original_max_position_embeddings"):
        values(tmp_path, rope_parameters={**TABLES, **outer})


def test_names_of_experts_inside_transformers(tmp_path: Path) -> None:
    """Find them by the names of modules, which files need not have."""
    checkpoint = Files(tmp_path).checkpoint(recorded())
    file = checkpoint.path / "model.safetensors"
    held = load_file(file)
    correction = ".experts.e_score_correction_bias", ".gate.e_score_correction_bias"
    shared = ".shared_expert.", ".shared_experts."
    named = {name.replace(*correction).replace(*shared): held[name] for name in held}
    assert {*named}.isdisjoint(name for name in held if "shared" in name or "correction" in name)
    save_file(named, file)
    again = open_checkpoint(checkpoint.path)
    plan(find_recipe(again), again).check()


def test_layers_with_experts_that_no_key_lists(tmp_path: Path) -> None:
    found = resolved(tmp_path, {k: v for k, v in CONFIG.items() if k != "mlp_layer_types"})[1]
    assert found.values["expert_layers"] == (False, *[True] * 39)


def test_a_bound_of_routers_is_lost_in_gguf_and_told(tmp_path: Path) -> None:
    found = values(tmp_path, moe_router_logit_softcapping=30.0)
    notes = written_notes(load_recipe("laguna"), "gguf", found)
    assert sum("router_softcap = 30.0 is not written: llama.cpp" in note for note in notes) == 1


@pytest.fixture
def converted(tmp_path: Path) -> Checkpoint:
    source = Files(tmp_path / "hf").checkpoint(recorded())
    convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
    return open_checkpoint(tmp_path / "model.gguf")


def read(checkpoint: Checkpoint, **changed: Any) -> dict[str, Any]:
    """The fields of a GGUF file without tensors, some keys changed, or left out (None)."""
    keys = dict(checkpoint.metadata) | {f"laguna.{name}": each for name, each in changed.items()}
    kept = {name: value for name, value in keys.items() if value is not None}
    replaced = dataclasses.replace(checkpoint, metadata=kept, tensors={})
    return dict(resolve_config(load_recipe("laguna"), replaced).values)


def test_windows_of_gguf_that_no_key_lists(converted: Checkpoint) -> None:
    """Take all layers but the first of every four, as llama.cpp does."""
    heads = {"attention.head_count": np.uint32(12), "vocab_size": np.uint32(9)}
    found = read(converted, block_count=np.uint32(9), **heads)
    assert found["sliding_layers"] == tuple(i % 4 != 0 for i in range(9))


def test_no_key_lists_windows_in_gguf_that_come_as_usual(tmp_path: Path) -> None:
    written = written_keys(load_recipe("laguna"), "gguf", values(tmp_path))
    assert "laguna.attention.sliding_window_pattern" not in written


def test_how_many_experts_of_gguf_are_shared(converted: Checkpoint) -> None:
    name = "expert_shared_count"
    assert read(converted) == read(converted, **{name: np.uint32(1)})
    with pytest.raises(ConfigurationError, match=f"{name} = 2 is not supported"):
        read(converted, **{name: np.uint32(2)})


def test_heads_of_gguf_without_a_width(converted: Checkpoint) -> None:
    left = {"attention.key_length": None, "attention.value_length": None}
    sizes = {"embedding_length": np.uint32(48), "attention.head_count": np.uint32(12)}
    assert read(converted, **left, **sizes)["head_dim"] == 4


def test_the_last_key_of_gguf(converted: Checkpoint) -> None:
    keys = [key for key in converted.metadata if key.startswith("laguna.")]
    assert keys[-2:] == ["laguna.rope.dimension_count", "laguna.rope.dimension_count_swa"]
