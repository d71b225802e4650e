"""Graphs of checkpoints that others made, in float64: two spellings, two dialects, quantized."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.parity.measure import RECORDING_ERROR, error, greedy, logits, recorded

FAMILIES = (
    "gemma2",
    "gemma3",
    "gpt2",
    "llama",
    "mistral",
    "mixtral",
    "phi3",
    "qwen2",
    "qwen3",
    "stories260K",
)


@pytest.fixture
def gguf_as_folder() -> Callable[[Path, Path, Path], None]:
    """Writes a Hugging Face folder with the values of a GGUF file."""
    gguf = pytest.importorskip("gguf")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    names = {
        "token_embd": "model.embed_tokens",
        "output": "lm_head",
        "output_norm": "model.norm",
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }

    def rename(name: str) -> str:
        parts = name.split(".")
        start = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
        return f"{start}{names[parts[-2]]}.weight"

    def halves(rows: np.ndarray, head_dim: int) -> np.ndarray:
        """Undo llama.cpp's permutation: neighbours of a head go half a head apart."""
        return rows.reshape(-1, head_dim // 2, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)

    def write(file: Path, config: Path, folder: Path) -> None:
        head_dim = json.loads(config.read_text())["head_dim"]
        arrays = {}
        for tensor in gguf.GGUFReader(file).tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            if "attn_q" in tensor.name or "attn_k" in tensor.name:
                values = halves(values, head_dim)
            arrays[rename(tensor.name)] = np.ascontiguousarray(values)
        save_file(arrays, folder / "model.safetensors")
        shutil.copy(config, folder / "config.json")

    return write


@pytest.mark.sampled
@pytest.mark.reference
@pytest.mark.parametrize("config", ["config.json", "config.older.json"])
@pytest.mark.parametrize("name", FAMILIES)
def test_reference_folders(reference: Path, name: str, config: str) -> None:
    folder, expected = reference / name, recorded(reference / name)
    found = logits(folder, expected["input_ids"], folder / config)
    assert error(found, expected["logits"]) < RECORDING_ERROR
    tokens = expected["greedy_tokens"]
    found = greedy(folder, expected["greedy_prompt"], tokens, folder / config)
    np.testing.assert_array_equal(found, tokens)


@pytest.mark.reference
@pytest.mark.parametrize("name", ["gemma2", "gemma3", "llama", "stories260K"])
def test_reference_gguf(reference: Path, name: str) -> None:
    expected, file = recorded(reference / name), reference / name / f"{name}-f32.gguf"
    assert error(logits(file, expected["input_ids"]), expected["logits"]) < RECORDING_ERROR
    tokens = expected["greedy_tokens"]
    np.testing.assert_array_equal(greedy(file, expected["greedy_prompt"], tokens), tokens)


@pytest.mark.reference
def test_gguf_without_a_window_agrees_inside_the_window(reference: Path) -> None:
    """llama.cpp's converter does not write Mistral's window of 16 into the file."""
    expected = np.load(reference / "mistral" / "expected.npz")
    found = logits(reference / "mistral" / "mistral-f32.gguf", expected["input_ids"])
    assert error(found[:, :16], expected["logits"][:, :16]) < RECORDING_ERROR
    assert error(found[:, 16:], expected["logits"][:, 16:]) > 0.01


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["f16", "bf16", "Q4_0", "Q4_1", "Q5_1", "Q8_0", "Q2_K", "Q4_K_M"])
def test_quantized_gguf_is_its_dequantized_weights(
    reference: Path, kind: str, tmp_path: Path, gguf_as_folder: Callable[[Path, Path, Path], None]
) -> None:
    """The file's values, dequantized by the gguf package and written as a Hugging Face folder."""
    file = reference / "llama" / f"llama-{kind}.gguf"
    gguf_as_folder(file, reference / "llama" / "config.json", tmp_path)
    ids = np.load(reference / "llama" / "expected.npz")["input_ids"]
    assert error(logits(file, ids), logits(tmp_path, ids)) < 1e-6
