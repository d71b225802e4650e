"""Layers behind the pooling as torch computes them, read from the folders that they are kept in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from maxtool.recipe.dense_modules import CONFIG, KIND, WEIGHTS
from maxtool.recipe.sentence_modules import modules_of

Array: TypeAlias = np.ndarray[Any, Any]


def layers_of(folder: Path) -> list[Callable[[Any], Any]]:
    """The layers of a folder in their order, each a function of a tensor."""
    return [_layer(folder / module.path) for module in modules_of(folder, KIND)]


def applied(layers: Iterable[Callable[[Any], Any]], vectors: Array) -> Array:
    """The vectors ``[batch, hidden]`` behind all layers."""
    import torch

    with torch.inference_mode():
        x = torch.from_numpy(vectors.astype(np.float32))
        for layer in layers:
            x = layer(x)
    found: Array = x.numpy()
    return found


def _layer(folder: Path) -> Callable[[Any], Any]:
    import torch

    config = json.loads((folder / CONFIG).read_text())
    held = {name.removeprefix("linear."): each.float() for name, each in _held(folder).items()}
    linear = torch.nn.Linear(config["in_features"], config["out_features"], "bias" in held)
    linear.load_state_dict(held)
    kind = config.get("activation_function", "Tanh").rpartition(".")[2]
    layer: Callable[[Any], Any] = torch.nn.Sequential(linear, getattr(torch.nn, kind)()).eval()
    return layer


def _held(folder: Path) -> dict[str, Any]:
    """The tensors of a layer, by the libraries of the formats."""
    import torch
    from safetensors.torch import load_file

    plain, pickled = (folder / name for name in WEIGHTS)
    held: dict[str, Any] = (
        load_file(plain) if plain.is_file() else torch.load(pickled, weights_only=True)
    )
    return held
