"""Hugging Face folders with random weights, written without transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from maxtool.architectures import build
from maxtool.recipe import find_recipe, resolve_config
from maxtool.recipe.bind import emissions
from maxtool.weights.checkpoint import Checkpoint, open_checkpoint

# Classes that are not called as their model type is, in capitals.
CLASSES = {
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
MOST_LAYERS = 8


def write(folder: Path, config: dict[str, Any], seed: int) -> None:
    """Write a folder whose tensors have the names and shapes that the recipe writes."""
    folder.mkdir(parents=True)
    kind = config["model_type"]
    usual = f"{kind.title().replace('_', '')}ForCausalLM"
    written = {"architectures": [CLASSES.get(kind, usual)], "torch_dtype": "float32"} | config
    (folder / "config.json").write_text(json.dumps(written))
    file = folder / "model.safetensors"
    save_file({f"none.{i}": np.zeros(1, np.float32) for i in range(MOST_LAYERS)}, file)
    random, arrays = np.random.default_rng(seed), {}
    for name, shape in _wanted(open_checkpoint(folder)):
        centre = 1.0 if ("norm" in name or ".ln_" in name) and name.endswith("weight") else 0.0
        spread = 0.3 if len(shape) == 1 else 1.2 / shape[-1] ** 0.5
        arrays[name] = random.normal(centre, spread, shape).astype(np.float32)
    save_file(arrays, file, {"format": "pt"})


def _wanted(checkpoint: Checkpoint) -> list[tuple[str, tuple[int, ...]]]:
    """The names and shapes of the tensors of a configuration, in order."""
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    module = build(recipe.architecture, values)
    shapes = {name: weight.shape.static() for name, weight in module.raw_state_dict().items()}
    return sorted((one.name, tuple(one.shape)) for one in emissions(recipe, "hf", values, shapes))
