"""Layers that differ in windows and rotary settings, through GGUF and compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maxtool import artifact
from maxtool.conversion import Request, convert, prepare
from tests.artifact.measure import BOUND, error, logits
from tests.parity import folders
from tests.parity import measure as reference

GEMMA3 = {
    "model_type": "gemma3_text",
    "vocab_size": 35,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "max_position_embeddings": 65,
    "rms_norm_eps": 1e-3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "hidden_size": 40,
    "attention_bias": True,
    "query_pre_attn_scalar": 9,
    "sliding_window": 16,
    "sliding_window_pattern": 2,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e6,
    "rope_scaling": {"rope_type": "linear", "factor": 4.0},
}


def test_gemma3_whose_kinds_of_layers_differ_in_scaling_alone(tmp_path: Path) -> None:
    """Equal bases, and a linear factor on the layers without a window only."""
    folder, file, output = (tmp_path / name for name in ("folder", "model.gguf", "out"))
    folders.write(folder, GEMMA3, seed=81)
    convert(prepare(Request(folder, file)))
    artifact.make(artifact.prepare(artifact.Request(file, output, check=True)))
    ids = np.random.default_rng(0).integers(0, 35, (1, 40))
    expected = reference.logits(folder, ids)
    assert error(reference.logits(file, ids), expected) <= BOUND
    assert error(logits(output, ids), expected) <= BOUND
