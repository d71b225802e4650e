"""Quantized checkpoints of real libraries, decoded to the bits that these decode them to."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.recipe import recognise
from maxtool.weights import open_checkpoint

QUANTIZED = Path(__file__).resolve().parents[1] / "data" / "quantized"
NAMES = sorted(path.name for path in QUANTIZED.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_has_the_bits_of_its_library(name: str) -> None:
    checkpoint = open_checkpoint(QUANTIZED / name)
    decoded = json.loads((QUANTIZED / name / "decoded.json").read_text())
    assert len(decoded) == 14
    for weight, (dtype, shape, digest) in decoded.items():
        data = checkpoint.read(weight)
        assert (data.dtype, list(data.shape)) == (DType(dtype), shape)
        assert hashlib.sha256(data.data.tobytes()).hexdigest() == digest, weight


@pytest.mark.parametrize("name", NAMES)
def test_recipes_recognise_it(name: str) -> None:
    checkpoint = open_checkpoint(QUANTIZED / name)
    found = recognise(checkpoint)
    assert (found.recipe, found.problems) == ("llama", [])
    assert checkpoint.config is not None
    assert "quantization_config" not in checkpoint.config


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_convert_writes_what_is_decoded(name: str, to: str, tmp_path: Path) -> None:
    source = open_checkpoint(QUANTIZED / name)
    output = tmp_path / "out"
    convert(prepare(Request(QUANTIZED / name, output, to=to)))  # type: ignore[arg-type]
    written = open_checkpoint(output)
    names = {"hf": "model.layers.1.mlp.down_proj.weight", "gguf": "blk.1.ffn_down.weight"}
    expected = source.read(names["hf"])
    data = written.read(names[to])
    assert data.dtype is expected.dtype
    np.testing.assert_array_equal(data.data, expected.data)
