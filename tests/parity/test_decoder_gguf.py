"""Graphs of GGUF files that the gguf package and llama.cpp's converter wrote of tiny folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from maxtool.errors import ConfigurationError, UnexpectedWeight, UnknownArchitecture
from maxtool.weights.checkpoint import open_checkpoint
from tests.parity.measure import CONVERTED, DATA, UNSAID, error, logits, recorded
from tests.parity.traced import TracedModel

NAMES = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(folder: Path, file: Path, **extra: Any) -> None:
    """Return llama.cpp's conversion of a folder; ``extra`` are further keys of llama."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base((config.get("rope_parameters") or config)["rope_theta"])
    for key, value in extra.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"llama.{key.replace('__', '.')}", value)
    for name, array in load_file(folder / "model.safetensors").items():
        writer.add_tensor(rename(name), permuted(name, array, config["head_dim"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rename(name: str) -> str:
    parts = name.removeprefix("model.layers.").split(".", 1)
    layer, rest = (f"blk.{parts[0]}.", parts[1]) if parts[0].isdigit() else ("", name)
    stem, _, kind = rest.rpartition(".")
    return f"{layer}{NAMES[stem]}.{kind}"


def permuted(name: str, array: np.ndarray, head_dim: int) -> np.ndarray:
    """Query and key rows as pairs: what lay half a head apart become neighbours."""
    array = array.astype(np.float32)
    if "q_proj" not in name and "k_proj" not in name:
        return array
    halves = array.reshape(-1, 2, head_dim // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)


def relative_error(file: Path, name: str) -> float:
    expected = recorded(DATA / name)
    return error(logits(file, expected["input_ids"]), expected["logits"])


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("tiny-llama", {}),
        ("tiny-llama-tied", {"rope__scaling__type": "linear", "rope__scaling__factor": 2.0}),
        ("tiny-mistral", {"attention__sliding_window": 7}),
    ],
)
def test_logits_are_those_of_transformers(name: str, extra: dict[str, Any], tmp_path: Path) -> None:
    write_gguf(DATA / name, tmp_path / "model.gguf", **extra)
    assert relative_error(tmp_path / "model.gguf", name) < 1e-6


@pytest.mark.parametrize("name", ["tiny-llama-tied", "tiny-mistral"])
def test_scaling_and_window_count(name: str, tmp_path: Path) -> None:
    write_gguf(DATA / name, tmp_path / "model.gguf")
    assert relative_error(tmp_path / "model.gguf", name) > 1e-3


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"expert_count": 4}, "llama.expert_count = 4 is not supported"),
        ({"rope__dimension_count": 14}, "llama.rope.dimension_count = 14 is not supported"),
        ({"rope__scale_linear": 2.0}, "llama.rope.scale_linear = 2.0 is not supported"),
        ({"rope__scaling__type": "spiral"}, "spiral"),
        ({"rope__scaling__type": "linear"}, "rope_scaling 'linear' needs rope_factor"),
        ({"attention__value_length": 8}, "llama.attention.value_length"),
    ],
)
def test_what_it_cannot_compute_is_refused(
    extra: dict[str, Any], word: str, tmp_path: Path
) -> None:
    write_gguf(DATA / "tiny-llama", tmp_path / "model.gguf", **extra)
    with pytest.raises(ConfigurationError, match=word.replace(".", r"\.")):
        relative_error(tmp_path / "model.gguf", "tiny-llama")


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "rwkv7")
    writer.add_tensor("token_embd.weight", np.ones((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnknownArchitecture, match="rwkv7"):
        relative_error(tmp_path / "model.gguf", "tiny-llama")


def test_a_bias_in_one_layer_is_wanted_in_all(tmp_path: Path) -> None:
    write_gguf(DATA / "tiny-llama-tied", tmp_path / "model.gguf")
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    tensors = {
        name: info for name, info in checkpoint.tensors.items() if name != "blk.0.attn_q.bias"
    }
    object.__setattr__(checkpoint, "tensors", tensors)
    with pytest.raises(UnexpectedWeight, match=r"blk\.1\.attn_q\.bias"):
        TracedModel(checkpoint)


@pytest.mark.parametrize("name", CONVERTED)
def test_a_converted_file_computes_what_its_folder_does(name: str, tmp_path: Path) -> None:
    """llama.cpp's converter made the file; it cannot say some of the options."""
    folder, ids = DATA / name, recorded(DATA / name)["input_ids"]
    config = json.loads((folder / "config.json").read_text()) | UNSAID.get(name, {})
    (tmp_path / "config.json").write_text(json.dumps(config))
    expected = logits(folder, ids, tmp_path / "config.json")
    assert error(logits(folder / f"{name}-f32.gguf", ids), expected) < 1e-6
