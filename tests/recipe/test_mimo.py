"""MiMo V2 Flash: windows as transformers and llama.cpp take them, keys that must agree, files."""

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
from maxtool.recipe import find_recipe, load_recipe, plan, resolve_config, written_keys
from maxtool.weights import Checkpoint, open_checkpoint
from tests.recipe.test_published import PUBLISHED, resolved
from tests.variants.rows import Files, Row, rows

CONFIG = PUBLISHED["MiMo-V2-Flash"]["config"]
LAYERS = CONFIG["num_hidden_layers"]
# What the published configuration says in keys of its own, which transformers does not read.
AGAIN = ("hybrid_layer_pattern", "moe_layer_freq", "layernorm_epsilon", "rope_theta")
AGAIN += ("partial_rotary_factor", "swa_rope_theta", "swa_head_dim", "swa_v_head_dim")
AGAIN += ("swa_num_attention_heads", "swa_num_key_value_heads")
KINDS = ("full_attention", "sliding_attention")


def values(folder: Path, **changed: Any) -> dict[str, Any]:
    """The fields of the published configuration with some keys changed, or left out (...)."""
    kept = {key: value for key, value in {**CONFIG, **changed}.items() if value is not ...}
    return resolved(folder, kept)[1].values


@pytest.mark.parametrize(
    ("said", "width"),
    [
        ({}, 129),
        ({"sliding_window": ...}, 129),
        ({"sliding_window": 129}, 129),
        ({"sliding_window_size": None}, 128),
        ({"sliding_window_size": ..., "sliding_window": ...}, 129),
        ({"sliding_window_size": 7, "sliding_window": ...}, 8),
        ({"sliding_window_size": 0, "sliding_window": 1}, 1),
        ({"sliding_window_size": ..., "sliding_window": 5}, 5),
    ],
)
def test_windows(said: dict[str, Any], width: int, tmp_path: Path) -> None:
    """Count a query's own key besides those before it, as transformers does."""
    found = values(tmp_path, **said)
    assert found["sliding_window"] == width
    written = written_keys(load_recipe("mimo_v2_flash"), "hf", found)
    assert written["sliding_window"] == width
    assert "sliding_window_size" not in written
    keys = written_keys(load_recipe("mimo_v2_flash"), "gguf", found)
    assert keys["mimo2.attention.sliding_window"] == width


@pytest.mark.parametrize(
    "said",
    [
        {"sliding_window": 64},
        {"sliding_window_size": -1},
        {"sliding_window_size": True},
        {"sliding_window_size": "128"},
        {"sliding_window_size": ..., "sliding_window": 0},
    ],
)
def test_windows_that_are_refused(said: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="sliding_window"):
        values(tmp_path, **said)


def test_defaults_are_what_is_published(tmp_path: Path) -> None:
    usual = values(tmp_path)
    assert values(tmp_path, **dict.fromkeys(AGAIN, ...)) == usual
    assert values(tmp_path, **dict.fromkeys(AGAIN, None)) == usual
    left = ("head_dim", "v_head_dim", "num_key_value_heads", "n_routed_experts", "topk_group")
    left += ("num_experts_per_tok", "moe_intermediate_size", "n_group", "norm_topk_prob")
    left += ("attention_value_scale", "routed_scaling_factor", "attention_bias", "hidden_act")
    assert values(tmp_path, **dict.fromkeys(left, ...)) == usual
    assert values(tmp_path, max_position_embeddings=...)["context_length"] == 131072
    scaled = {"attention_value_scale": None, "routed_scaling_factor": 2.0}
    found = values(tmp_path, **scaled, n_routed_experts=..., num_local_experts=64)
    assert found["value_scale"] == 1.0
    assert (found["expert_scale"], found["n_experts"]) == (2.0, 64)


@pytest.mark.parametrize("key", AGAIN)
def test_what_is_said_again_otherwise(key: str, tmp_path: Path) -> None:
    said = CONFIG[key]
    other = [1 - said[0], *said[1:]] if isinstance(said, list) else said * 2
    with pytest.raises(ConfigurationError, match="transformers does not read"):
        values(tmp_path, **{key: other})
    for wrong in ("x", [2] * LAYERS):
        with pytest.raises(ConfigurationError, match=key):
            values(tmp_path, **{key: wrong})


def test_what_transformers_reads_counts(tmp_path: Path) -> None:
    left = dict.fromkeys(AGAIN, ...)
    tables = {
        kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share}
        for kind, theta, share in zip(KINDS, (2e6, 3e4), (0.5, 0.25), strict=True)
    }
    kinds = [KINDS[layer % 2] for layer in range(LAYERS)]
    mlps = ["sparse", *["dense"] * (LAYERS - 1)]
    further = {"rms_norm_eps": 1e-3, "layer_types": kinds, "mlp_layer_types": mlps}
    found = values(tmp_path, **left, **further, rope_parameters=tables, num_key_value_heads=2)
    assert (found["rotary_dim"], found["rotary_local_dim"]) == (96, 48)
    assert (found["rope_theta"], found["rope_local_theta"]) == (2e6, 3e4)
    assert (found["n_kv_heads"], found["local_kv_heads"]) == (2, 4)
    assert found["norm_eps"] == 1e-3
    windows = tuple(layer % 2 == 1 for layer in range(LAYERS))
    assert found["sliding_layers"] == found["sink_layers"] == windows
    assert found["expert_layers"] == (True, *[False] * (LAYERS - 1))
    written = written_keys(load_recipe("mimo_v2_flash"), "hf", found)
    assert {key: written[key] for key in further} == further
    assert not {*AGAIN} & {*written}
    assert written["rope_parameters.sliding_attention.rope_type"] == "default"
    assert written["rope_parameters.full_attention.rope_type"] == "default"


@pytest.mark.parametrize(
    "said",
    [
        *({"num_nextn_predict_layers": count} for count in range(4)),
        {"attention_projection_layout": "split"},
        {"n_shared_experts": 0},
        {"hidden_act": "swish"},
        dict.fromkeys(("add_swa_attention_sink_bias", "scoring_func", "topk_method"), ...),
    ],
)
def test_what_changes_nothing(said: dict[str, Any], tmp_path: Path) -> None:
    assert values(tmp_path, **said) == values(tmp_path)


@pytest.mark.parametrize(
    ("name", "act"),
    [("gelu", "gelu"), ("gelu_python", "gelu"), ("gelu_fast", "gelu_tanh")],
)
def test_activations(name: str, act: str, tmp_path: Path) -> None:
    assert values(tmp_path, hidden_act=name)["hidden_act"] == act


@pytest.mark.parametrize(("said", "field"), [(0.5, "rotary_local_dim"), (0.25, "rotary_dim")])
def test_a_share_of_both_kinds_of_layers(said: float, field: str, tmp_path: Path) -> None:
    """Refuse it where one of them has another."""
    tables = {
        kind: {"rope_theta": theta, "partial_rotary_factor": share}
        for kind, theta, share in zip(KINDS, (5e6, 1e4), (0.5, 0.25), strict=True)
    }
    with pytest.raises(ConfigurationError, match=rf"disagree \({field}\)"):
        values(tmp_path, partial_rotary_factor=said, rope_parameters=tables)
    del tables["sliding_attention"]["partial_rotary_factor"]
    found = values(tmp_path, partial_rotary_factor=..., rope_parameters=tables)
    assert (found["rotary_dim"], found["rotary_local_dim"]) == (96, 64)


@pytest.mark.parametrize(
    "said",
    [
        {"add_full_attention_sink_bias": True},
        {"add_swa_attention_sink_bias": False},
        {"attention_chunk_size": 64},
        {"attention_projection_layout": "fused_qkv"},
        {"num_nextn_predict_layers": 4},
        {"scoring_func": "softmax"},
        {"topk_method": "greedy"},
        {"n_shared_experts": 1},
        {"attention_value_scale": 0.0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e6}},
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 5e6}}},
        {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "rope_theta": 1e4}}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
    ],
)
def test_what_is_refused(said: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        checked(values(tmp_path, **said))


def checked(found: dict[str, Any]) -> None:
    """Build the fields' decoder, as far as its options are checked."""
    if wrong := problems(DecoderConfig(**found)):
        raise ConfigurationError("not supported", problems=wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm_topk", False),
        ("expert_scale", 2.0),
        ("tie_word_embeddings", True),
        ("rotary_local_dim", 32),
    ],
)
def test_what_gguf_cannot_say(field: str, value: object, tmp_path: Path) -> None:
    found = values(tmp_path) | {field: value}
    with pytest.raises(ConfigurationError, match="cannot be written for gguf") as error:
        written_keys(load_recipe("mimo_v2_flash"), "gguf", found)
    assert any(field in line for line in error.value.problems)


@pytest.mark.parametrize(("field", "value"), [("local_kv_heads", 4), ("sink_layers", (True,) * 48)])
def test_what_hugging_face_cannot_say(field: str, value: object, tmp_path: Path) -> None:
    found = values(tmp_path) | {field: value}
    with pytest.raises(ConfigurationError, match="cannot be written for hf"):
        written_keys(load_recipe("mimo_v2_flash"), "hf", found)


def recorded() -> Row:
    """A recorded model of layers of both kinds."""
    return next(
        row
        for row in rows("mimo_v2_flash")
        if {*row.config["layer_types"]} == {*KINDS}
        and "gguf" in row.more
        and row.config["attention_value_scale"] is not None
    )


@pytest.fixture
def converted(tmp_path: Path) -> Checkpoint:
    source = Files(tmp_path / "hf").checkpoint(recorded())
    convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
    return open_checkpoint(tmp_path / "model.gguf")


def read(checkpoint: Checkpoint, **changed: Any) -> dict[str, Any]:
    """The fields of a GGUF file, some keys changed, or left out (None)."""
    keys = dict(checkpoint.metadata) | {f"mimo2.{name}": each for name, each in changed.items()}
    kept = {name: value for name, value in keys.items() if value is not None}
    replaced = dataclasses.replace(checkpoint, metadata=kept)
    return dict(resolve_config(load_recipe("mimo_v2_flash"), replaced).values)


def test_layers_of_gguf_that_predict_further_tokens(converted: Checkpoint) -> None:
    """Leave them out of the lists, too, as llama.cpp's converter counts them there."""
    found, count = read(converted), int(converted.metadata["mimo2.block_count"])
    lists = {
        f"attention.{name}": np.append(converted.metadata[f"mimo2.attention.{name}"], [last] * 3)
        for name, last in (("head_count_kv", 8), ("sliding_window_pattern", 1))
    }
    numbers = {"block_count": np.uint32(count + 3), "nextn_predict_layers": np.uint32(3)}
    assert read(converted, **numbers, **lists) == found
    with pytest.raises(ConfigurationError, match="sliding_window_pattern"):
        read(converted, **lists)
    with pytest.raises(ConfigurationError, match="head_count_kv"):
        read(converted, **{name: lists[name] for name in ["attention.head_count_kv"]})
    head_count = {"attention.head_count_kv": np.arange(1, count + 1)}
    with pytest.raises(ConfigurationError):
        read(converted, **head_count, **{"attention.sliding_window_pattern": np.ones(count, int)})


def test_heads_of_layers_of_one_kind(converted: Checkpoint) -> None:
    count = int(converted.metadata["mimo2.block_count"])
    for is_local, heads in ((1, 6), (0, 3)):
        lists = {
            "attention.head_count_kv": np.full(count, heads),
            "attention.sliding_window_pattern": np.full(count, is_local),
        }
        found = read(converted, **lists)
        assert (found["n_kv_heads"], found["local_kv_heads"]) == (3, 6)
    one = read(converted, **{"attention.head_count_kv": np.uint32(3)})
    assert (one["n_kv_heads"], one["local_kv_heads"]) == (3, 3)


def test_keys_of_gguf_that_are_left_out(converted: Checkpoint) -> None:
    assert read(converted, **{"attention.value_scale": None})["value_scale"] == 1.0
    base = {"rope.freq_base": np.float32(77.0), "rope.freq_base_swa": None}
    assert read(converted, **base)["rope_local_theta"] == 77.0
    assert read(converted, **{"rope.freq_base": None})["rope_theta"] == 10000.0
    sizes = {"attention.key_length": None, "attention.value_length": None}
    sizes |= {"embedding_length": np.uint32(48), "attention.head_count": np.uint32(12)}
    sizes |= {"rope.dimension_count": None}
    found = read(converted, **sizes)
    assert (found["head_dim"], found["value_dim"], found["rotary_dim"]) == (4, 4, 4)
    assert read(converted, **{"rope.scaling.type": "none"}) == read(converted)
    with pytest.raises(ConfigurationError, match="yarn"):
        read(converted, **{"rope.scaling.type": "yarn"})


def test_tensors_that_are_left_out(tmp_path: Path) -> None:
    checkpoint = Files(tmp_path).checkpoint(recorded())
    file = checkpoint.path / "model.safetensors"
    held = load_file(file)
    left = ("model.rotary_emb.inv_freq", "model.mtp.layers.0.self_attn.q_proj.weight")
    sinks = ".attention_sink_bias", ".sinks"
    named = {name.replace(*sinks): each for name, each in held.items()}
    for tensors in (held, named):
        save_file(tensors | {name: np.ones(2, "f4") for name in left}, file)
        again = open_checkpoint(checkpoint.path)
        planned = plan(find_recipe(again), again)
        planned.check()
        assert {*planned.dropped} == {*left}


def test_a_head_that_is_tied_and_there_all_the_same(tmp_path: Path) -> None:
    row = next(row for row in rows("mimo_v2_flash") if row.config["tie_word_embeddings"])
    checkpoint = Files(tmp_path).checkpoint(row)
    file = checkpoint.path / "model.safetensors"
    held = load_file(file)
    save_file(held | {"lm_head.weight": held["model.embed_tokens.weight"]}, file)
    again = open_checkpoint(checkpoint.path)
    plan(find_recipe(again), again).check()


def test_the_last_key_of_gguf(converted: Checkpoint) -> None:
    keys = [key for key in converted.metadata if key.startswith("mimo2.")]
    assert keys[-2:] == ["mimo2.rope.dimension_count", "mimo2.attention.value_scale"]
