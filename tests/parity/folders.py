"""Hugging Face folders with random weights, written without transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from maxtool.parity.decoder.sources import read_settings
from maxtool.parity.decoder.tensors import Tensors
from maxtool.weights.checkpoint import open_checkpoint

CLASSES = {
    "falcon": "FalconForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "granite": "GraniteForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
}
MOST_LAYERS = 8


def write(folder: Path, config: dict[str, Any], seed: int) -> None:
    """A folder whose tensors have the names and shapes that the reference wants."""
    folder.mkdir(parents=True)
    written = {"architectures": [CLASSES[config["model_type"]]], "torch_dtype": "float32"} | config
    (folder / "config.json").write_text(json.dumps(written))
    file = folder / "model.safetensors"
    save_file({f"none.{i}": np.zeros(1, np.float32) for i in range(MOST_LAYERS)}, file)
    checkpoint = open_checkpoint(folder)
    random, arrays = np.random.default_rng(seed), {}
    for name, shape in Tensors(read_settings(checkpoint), checkpoint).wanted():
        centre = 1.0 if ("norm" in name or ".ln_" in name) and name.endswith("weight") else 0.0
        spread = 0.3 if len(shape) == 1 else 1.2 / shape[-1] ** 0.5
        arrays[name] = random.normal(centre, spread, shape).astype(np.float32)
    save_file(arrays, file, {"format": "pt"})
