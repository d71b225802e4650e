"""Keys that the table of a language model inside another leaves out, as transformers completes it.

Older releases wrote no key inside a table whose value was the class's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZES: tuple[str, ...] = ("hidden_size", "intermediate_size", "num_hidden_layers")
SIZES += ("num_attention_heads", "vocab_size")
USUAL: Mapping[str, tuple[int, ...]] = {
    "gemma": (3072, 24576, 28, 16, 256000),
    "gemma2": (2304, 9216, 26, 8, 256000),
    "llama": (4096, 11008, 32, 32, 32000),
    "mistral": (4096, 14336, 32, 32, 32000),
    "qwen2": (4096, 22016, 32, 32, 151936),
    "qwen3": (4096, 22016, 32, 32, 151936),
}
"""The sizes of a language model's class, by its kind."""
OF_WHOLE: Mapping[str, Mapping[str, Any]] = {
    "glmasr": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 59264,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
    },
    "voxtral": {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e8,
    },
}
"""What the class of a whole model puts into the table of any language model, by its kind."""
THETA = "rope_theta"


def completed(inside: Mapping[str, Any], whole: str, kind: str) -> dict[str, Any]:
    """The keys of a language model's table with those that it leaves out.

    Args:
        inside: The keys that the table has.
        whole: The ``model_type`` of the model that it is inside.
        kind: The table's own.
    """
    usual: dict[str, Any] = dict(zip(SIZES, USUAL.get(kind, ()), strict=False))
    usual |= OF_WHOLE.get(whole, {})
    if any(key.endswith(f".{THETA}") for key in inside):  # a table of rotary settings says it
        usual.pop(THETA, None)
    return {**usual, **inside}
