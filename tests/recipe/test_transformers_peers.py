"""Keys that a config.json leaves out mean what transformers takes them for, or are an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, resolve_config
from maxtool.recipe.text_defaults import OF_WHOLE, SIZES, USUAL
from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.random_configs import FAMILIES
from tests.data.random_families import AS_PAIRS, BY_TENSORS
from tests.effort import sampled

pytestmark = pytest.mark.peers

ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "modernbert", "electra")
ENCODERS += ("mpnet", "deberta-v2", "eurobert", "gte")
# What transformers itself cannot do without, or has no usual value of.
GIVEN: dict[str, dict[str, Any]] = {
    "cwm": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "dbrx": {"attn_config": {"clip_qkv": 8.0, "kv_n_heads": 8}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "gpt_oss": {"rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}},
    "ministral3": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    # The class of the whole, which alone has a head, ties none.
    "qwen3_vl_moe_text": {"tie_word_embeddings": False},
    # Its usual layers are of experts too, which are told by tensors.
    "nemotron_h": {"layers_block_type": ["linear_attention", "mlp", "full_attention"]},
}
# It does not run these without the rotary settings of each kind of layers.
BY_KIND = ("laguna", "mellum")
# What it writes in a form that it does not read: an infinity.
UNREAD = ("time_step_limit",)
# More layers and experts than the defaults have: what too few tensors cannot be is refused.
TENSORS = {f"none.{index}": np.zeros(1, np.float32) for index in range(130)}

# There are no tensors here; `variants/test_random.py` leaves out keys of whole models. Those of
# rotated halves are the same models with one key more.
LEFT_OUT = (*BY_TENSORS, *AS_PAIRS)
COMPARED = [name for name in (*FAMILIES, *ENCODERS) if name not in LEFT_OUT]
# Language models that are published inside others.
COMPARED += ["qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"]
COMPARED += ["glm4v_text", "glm4v_moe_text", "glm_ocr_text", "paddleocr_vl_text"]


@pytest.mark.parametrize("kind", USUAL)
def test_usual_sizes(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind)
    assert tuple(getattr(config, size) for size in SIZES) == USUAL[kind]


@pytest.mark.parametrize("kind", OF_WHOLE)
def test_what_a_whole_model_puts_into_the_table_inside(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    text = transformers.AutoConfig.for_model(kind, text_config={"model_type": "llama"}).text_config
    found = text.to_dict() | {"rope_theta": text.rope_parameters["rope_theta"]}
    assert {key: found[key] for key in OF_WHOLE[kind]} == OF_WHOLE[kind]


def recipe_values(checkpoint: Checkpoint) -> object:
    return resolve_config(find_recipe(checkpoint), checkpoint).values


def shorter(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The configuration without each of its keys, those of rotary settings too."""
    for key in config.keys() - {"model_type", *GIVEN.get(config["model_type"], {})}:
        yield key, {name: value for name, value in config.items() if name != key}
    rope = config.get("rope_parameters") or {}
    for key in rope if config["model_type"] not in BY_KIND else ():
        kept = {name: value for name, value in rope.items() if name != key}
        yield f"rope_parameters.{key}", {**config, "rope_parameters": kept}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", sampled(COMPARED, share=4))
def test_defaults_are_those_of_transformers(model_type: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    save_file(TENSORS, tmp_path / "model.safetensors")

    def completed(config: dict[str, Any]) -> dict[str, Any]:
        given = GIVEN.get(model_type, {}) | config
        given = {key: value for key, value in given.items() if key not in UNREAD}
        built = transformers.AutoConfig.for_model(model_type, **given)
        return {**json.loads(built.to_json_string(use_diff=False)), "model_type": model_type}

    def read(config: dict[str, Any]) -> object:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return recipe_values(open_checkpoint(tmp_path))

    whole = completed({})
    for key, config in shorter(whole):
        named = {name: value for name, value in config.items() if name != "model_type"}
        expected = read(completed(named))
        try:
            assert read(config) == expected, key
        except ConfigurationError as refusal:
            assert "is missing" in str(refusal), key
