"""A small decoder's configuration, for the tests to change."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool.architectures import Decoder

CONFIG: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 12,
    "n_layers": 3,
    "n_heads": 4,
    "n_kv_heads": 2,
    "head_dim": 4,
    "context_length": 16,
    "norm_eps": 1e-5,
}


def fill(model: Decoder, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Load random weights into ``model``: each near its scale, norms near 1. Returns them."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, weight in model.raw_state_dict().items():
        shape = weight.shape.static()
        value = rng.standard_normal(shape) / 2
        if "norm" in name and name.endswith("weight"):
            value = 1 + value / 2
        values[name] = value.astype(weight.dtype.to_numpy())
    model.load_state_dict(values)
    return values
