"""Record the rotary frequencies that transformers computes for each kind of scaling.

Needs the ``peers`` extra (torch, transformers). Writes ``rope_scalings.json``: for each case the
options as our decoder names them, the length of the sequence, and what transformers gives.

    python tests/data/record_rope.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recording import write_json
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FILE = Path(__file__).parent / "rope_scalings.json"

# What transformers calls our options.
KEYS = {
    "rope_theta": "rope_theta",
    "rope_scaling": "rope_type",
    "rope_factor": "factor",
    "rope_original_context": "original_max_position_embeddings",
    "rope_low_freq_factor": "low_freq_factor",
    "rope_high_freq_factor": "high_freq_factor",
    "rope_beta_fast": "beta_fast",
    "rope_beta_slow": "beta_slow",
    "rope_attention_factor": "attention_factor",
    "rope_mscale": "mscale",
    "rope_mscale_all_dim": "mscale_all_dim",
    "rope_truncate": "truncate",
    "rope_short_factors": "short_factor",
    "rope_long_factors": "long_factor",
}

LLAMA3 = {
    "rope_theta": 500000.0,
    "rope_scaling": "llama3",
    "rope_factor": 8.0,
    "rope_original_context": 8192,
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
}
YARN = {"rope_scaling": "yarn", "rope_original_context": 4096, "rope_factor": 16.0}
LONG = {
    "rope_scaling": "longrope",
    "rope_original_context": 4096,
    "rope_short_factors": [1.0, 1.1, 1.25, 1.4, 1.7, 2.0],
    "rope_long_factors": [1.0, 1.5, 2.2, 3.0, 4.5, 64.7],
}
SMALL = {"head_dim": 16, "rotary_dim": 12, "context_length": 131072}
WIDE = {"head_dim": 64, "rotary_dim": 64, "context_length": 131072}

CASES: list[tuple[dict[str, Any], int]] = [
    (WIDE | {"rope_scaling": "linear", "rope_factor": 3.0}, 1),
    (WIDE | LLAMA3, 1),
    (WIDE | LLAMA3 | {"rope_factor": 32.0, "rope_high_freq_factor": 2.5}, 1),
    (WIDE | YARN, 1),
    (WIDE | YARN | {"rope_factor": None, "rope_theta": 1e6, "rope_truncate": False}, 1),
    (WIDE | YARN | {"rope_beta_fast": 16.0, "rope_beta_slow": 2.0, "rope_mscale": 0.7}, 1),
    (WIDE | YARN | {"rope_mscale": 0.707, "rope_mscale_all_dim": 1.1}, 1),
    (SMALL | YARN | {"rope_attention_factor": 0.83, "rope_original_context": 8}, 1),
    (SMALL | YARN | {"rope_factor": 0.5}, 1),
    (SMALL | {"rope_scaling": "dynamic", "rope_factor": 2.0, "context_length": 2048}, 2048),
    (SMALL | {"rope_scaling": "dynamic", "rope_factor": 2.0, "context_length": 2048}, 2049),
    (WIDE | {"rope_scaling": "dynamic", "rope_factor": 4.0, "context_length": 2048}, 8191),
    (SMALL | LONG, 4096),
    (SMALL | LONG, 4097),
    (SMALL | LONG | {"rope_attention_factor": 1.3}, 1),
    (SMALL | LONG | {"rope_factor": 2.0}, 1),
]


def recorded(options: dict[str, Any], length: int) -> dict[str, Any]:
    """One case as transformers computes it."""
    scaling = {KEYS[name]: value for name, value in options.items() if name in KEYS}
    scaling.setdefault("rope_theta", 10000.0)
    scaling["partial_rotary_factor"] = options["rotary_dim"] / options["head_dim"]
    config = LlamaConfig(
        head_dim=options["head_dim"],
        max_position_embeddings=options["context_length"],
        rope_parameters=scaling,
    )
    compute = ROPE_INIT_FUNCTIONS[options["rope_scaling"]]
    frequencies, factor = compute(config, "cpu", seq_len=length)
    return {
        "options": options,
        "length": length,
        "frequencies": frequencies.tolist(),
        "factor": float(factor),
    }


if __name__ == "__main__":
    write_json(FILE, {"cases": [recorded(options, length) for options, length in CASES]})
