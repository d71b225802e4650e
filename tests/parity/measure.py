"""Results that tests compute from graphs, and recorded ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.weights.checkpoint import open_checkpoint
from tests.parity.traced import TracedModel

Array = np.ndarray[Any, Any]

DATA = Path(__file__).resolve().parents[1] / "data"
ENCODERS = ("bert", "roberta", "distilbert", "nomic_bert")
FOLDERS = tuple(
    sorted(
        file.parent.name
        for file in DATA.glob("tiny-*/config.json")
        if json.loads(file.read_text())["model_type"] not in ENCODERS
    )
)
"""The tiny checkpoints that are decoders."""
# What llama.cpp's converter does not write, for each of the files it made of the tiny folders.
UNSAID: Mapping[str, dict[str, Any]] = {
    "tiny-gemma2": {"query_pre_attn_scalar": 14},
    "tiny-gemma3": {"query_pre_attn_scalar": 10, "sliding_window_pattern": 6},
    "tiny-qwen2": {"use_sliding_window": False},
    "tiny-starcoder2": {"sliding_window": None},
}
CONVERTED = tuple(name for name in FOLDERS if (DATA / name / f"{name}-f32.gguf").exists())
RECORDING_ERROR = 2e-6
"""What float32 arithmetic in transformers adds to the recorded logits, relatively."""


def error(actual: Array, expected: Array) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def recorded(folder: Path) -> dict[str, Array]:
    """Return the outputs of transformers recorded for a checkpoint."""
    with np.load(folder / "expected.npz") as arrays:
        return dict(arrays)


def logits(path: Path, ids: Array, config: Path | None = None) -> Array:
    """The graph's logits at every position, in float64."""
    return TracedModel(open_checkpoint(path, config=config)).forward(ids)


def greedy(path: Path, prompt: Array, tokens: Array, config: Path | None = None) -> Array:
    """The likeliest token after the prompt and after each of the tokens but the last, cached."""
    ids = np.concatenate([prompt, tokens[:, :-1]], axis=1)
    starts = [0, *range(prompt.shape[1], ids.shape[1])]
    return TracedModel(open_checkpoint(path, config=config)).cached(ids, starts).argmax(-1)


def edited(folder: Path, tmp_path: Path, **changes: object) -> Path:
    """A copy of a Hugging Face folder with other configuration keys; None removes one."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text()) | changes
    kept = {key: value for key, value in config.items() if changes.get(key, 0) is not None}
    (copy / "config.json").write_text(json.dumps(kept))
    return copy
