"""Matrices of Falcon-H1 as GGUF keeps them: with the multipliers of the configuration in them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tests.data.seeded import Array, Config

# The endings of names, and the keys of what the tensors are multiplied by.
MULTIPLIERS: Mapping[str, tuple[str, ...]] = {
    "embed_tokens.weight": ("embedding_multiplier",),
    "lm_head.weight": ("lm_head_multiplier",),
    "q_proj.weight": ("attention_in_multiplier",),
    "k_proj.weight": ("attention_in_multiplier", "key_multiplier"),
    "v_proj.weight": ("attention_in_multiplier",),
    "o_proj.weight": ("attention_out_multiplier",),
    "out_proj.weight": ("ssm_out_multiplier",),
    "in_proj.weight": ("ssm_in_multiplier",),
}


def multiplied(config: Config, name: str, tensor: Array) -> Array:
    """A tensor of a folder as what is made of its GGUF file has it."""
    if config["model_type"] != "falcon_h1":
        return tensor
    gate, down = config["mlp_multipliers"]
    inner = {"gate_proj.weight": gate, "down_proj.weight": down}
    scales = [scale for end, scale in inner.items() if name.endswith(end)]
    ends = [keys for end, keys in MULTIPLIERS.items() if name.endswith(f".{end}") or name == end]
    scales += [config[key] for keys in ends for key in keys]
    if name.endswith("in_proj.weight"):
        width = config["mamba_d_ssm"]
        states = config["mamba_n_groups"] * config["mamba_d_state"]
        sizes = [width, width, states, states, config["mamba_n_heads"]]
        tensor = tensor * np.repeat(config["ssm_multipliers"], sizes)[:, None]
    return tensor * math.prod(scales)
