"""Checkpoints of any sizes with random weights, made by the rules of a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from maxtool import architectures
from maxtool.recipe import emissions, find_recipe
from maxtool.recipe.read_config import resolve_config
from maxtool.weights import open_checkpoint
from tests.data.seeded import tensors

DATA = Path(__file__).resolve().parents[1] / "data"


def random_checkpoint(folder: Path, like: str, **sizes: Any) -> Path:
    """A Hugging Face folder: a tiny checkpoint's configuration with other sizes.

    Args:
        folder: Where to make it; its file of weights has no tokenizer beside it.
        like: The name of a checkpoint of ``tests/data``.
        sizes: Keys of its ``config.json``, and their values.
    """
    folder.mkdir(exist_ok=True)
    config = json.loads((DATA / like / "config.json").read_text()) | sizes
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "model.safetensors"
    save_file({str(index): np.zeros(1, np.float32) for index in range(99)}, file)
    checkpoint = open_checkpoint(folder)
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    module = architectures.build(recipe.architecture, values)
    shapes = {name: weight.shape.static() for name, weight in module.raw_state_dict().items()}
    wanted = {each.name: each.shape for each in emissions(recipe, "hf", values, shapes)}
    save_file(tensors(wanted, 1.0), file)
    return folder
