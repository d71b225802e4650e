"""Phi 3.5 MoE: what cosines and sines are multiplied by, in GGUF and in Hugging Face folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import load_recipe, resolve_config, written_keys
from tests.data.seeded import Config
from tests.variants.rows import Files, rows

RECIPE = load_recipe("phimoe")


def fields(folder: Path) -> Config:
    """The fields of a recorded configuration with LongRoPE that GGUF can say."""
    row = next(row for row in rows("phimoe") if "rope_factors_long.weight" in held(row.more))
    return dict(resolve_config(RECIPE, Files(folder).checkpoint(row)).values)


def held(more: dict[str, Any]) -> Config:
    """The tensors of the GGUF file of a recorded configuration, if there is one."""
    return dict(more.get("gguf", {"tensors": {}})["tensors"])


def test_a_factor_that_llama_cpp_derives_otherwise_is_written(tmp_path: Path) -> None:
    """Write the model's own: the published one has 1.243 where the contexts give 1.190."""
    keys = written_keys(RECIPE, "gguf", fields(tmp_path) | {"rope_attention_factor": 1.243})
    assert keys["phimoe.rope.scaling.attn_factor"] == 1.243


def test_the_original_context_is_written_where_transformers_reads_it(tmp_path: Path) -> None:
    keys = written_keys(RECIPE, "hf", fields(tmp_path) | {"rope_original_context": 48})
    assert keys["rope_parameters.original_max_position_embeddings"] == 48
    assert "original_max_position_embeddings" not in keys


@pytest.mark.parametrize(
    "changed", [{"rope_long_attention_factor": 1.5}, {"expert_jitter": 0.02}], ids=str
)
def test_fields_that_gguf_cannot_say(tmp_path: Path, changed: Config) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(changed))} = "):
        written_keys(RECIPE, "gguf", fields(tmp_path) | changed)
