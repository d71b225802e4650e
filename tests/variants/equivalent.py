"""Damage to recipes that no recording can show, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[str, tuple[str, ...]] = {
    "only the names of entries are read, not their inputs": ("* entries/*/*",),
    "what is written besides repeats what its absence says": ("* drop config/*/hf/omit*",),
    "llama.cpp has no biases for Falcon: the rules say what is never written": (
        "falcon * weights/gguf/*bias*",
    ),
    "one key says both, and so do all files": (
        "* swap config/qkv_bias with 'o_bias'",
        "* swap config/o_bias with 'mlp_bias'",
    ),
    "the field is null unless the condition holds": (
        "* drop computed/gguf/rope_factors_*/when*",
        "_rotary drop config/rope_attention_factor/gguf/1/when",
    ),
}
"""Patterns of a recipe's name and a mutation, by the reason."""
