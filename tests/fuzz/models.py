"""A Llama small enough to be fuzzed: its configuration and tensors in both dialects."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import safetensors.numpy
from fuzz_gguf import file_of
from harness import folder

from maxtool.dtype import DType
from maxtool.recipe import find_recipe, load_recipe, plan
from maxtool.weights import Checkpoint, TensorSpec, open_checkpoint

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 6,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "vocab_size": 5,
}
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": np.uint32(1),
    "llama.context_length": np.uint32(16),
    "llama.embedding_length": np.uint32(8),
    "llama.feed_forward_length": np.uint32(6),
    "llama.attention.head_count": np.uint32(2),
    "llama.attention.head_count_kv": np.uint32(1),
    "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
    "llama.vocab_size": np.uint32(5),
}
# Hugging Face's name behind "model.", GGUF's name, shape.
TENSORS = [
    ("embed_tokens", "token_embd", (5, 8)),
    ("norm", "output_norm", (8,)),
    ("layers.0.input_layernorm", "blk.0.attn_norm", (8,)),
    ("layers.0.self_attn.q_proj", "blk.0.attn_q", (8, 8)),
    ("layers.0.self_attn.k_proj", "blk.0.attn_k", (4, 8)),
    ("layers.0.self_attn.v_proj", "blk.0.attn_v", (4, 8)),
    ("layers.0.self_attn.o_proj", "blk.0.attn_output", (8, 8)),
    ("layers.0.post_attention_layernorm", "blk.0.ffn_norm", (8,)),
    ("layers.0.mlp.gate_proj", "blk.0.ffn_gate", (6, 8)),
    ("layers.0.mlp.up_proj", "blk.0.ffn_up", (6, 8)),
    ("layers.0.mlp.down_proj", "blk.0.ffn_down", (8, 6)),
]


def as_gguf(**metadata: Any) -> bytes:
    specs = [TensorSpec(f"{name}.weight", DType.float32, shape) for _, name, shape in TENSORS]
    return file_of({**METADATA, **metadata}, *specs)


@cache
def huggingface() -> Checkpoint:
    """The model as a folder of its own, which no input changes."""
    path = folder().parent / "llama"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    tensors = {f"model.{name}.weight": np.ones(shape, "f4") for name, _, shape in TENSORS}
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    return open_checkpoint(path)


def read_by_recipe(checkpoint: Checkpoint, recipe: str | None = None) -> None:
    """Resolve the configuration, bind every parameter, and read them."""
    result = plan(load_recipe(recipe) if recipe else find_recipe(checkpoint), checkpoint)
    result.check()
    for parameter in result.parameters:
        result.read(parameter)
