"""A folder as a web server has it, with payloads far larger than what may be fetched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import safetensors.numpy

from maxtool.weights import TensorSpec
from maxtool.weights.formats import gguf
from maxtool.weights.tensor_info import DType

SIZE = 1 << 20  # elements


def save_model(tmp_path: Path) -> Path:
    """A sharded model, a single file and a GGUF file."""
    shards = {
        "model-00001-of-00002.safetensors": {"a": np.ones(SIZE, np.float32)},
        "model-00002-of-00002.safetensors": {"b.x": np.ones(SIZE, np.float32)},
    }
    for name, arrays in shards.items():
        safetensors.numpy.save_file(arrays, tmp_path / name)
    weight_map = {tensor: name for name, arrays in shards.items() for tensor in arrays}
    index = {"metadata": {}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    safetensors.numpy.save_file({"w": np.ones(SIZE, np.float32)}, tmp_path / "one.safetensors")
    tokens = {"tokens": [f"token {number}" for number in range(100_000)], "n": np.uint32(3)}
    spec = TensorSpec("w", DType.float32, (SIZE,))
    gguf.write(tmp_path / "m.gguf", [spec], [np.ones(SIZE, np.float32)], tokens)
    return tmp_path
