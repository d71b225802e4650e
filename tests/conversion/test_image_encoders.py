"""Encoders of images written as Hugging Face folders, and refused as GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.weights import open_checkpoint
from tests.artifact.test_image_encoders import CASES, PROCESSOR, RECORDED, written
from tests.conversion.asked import run
from tests.data.seeded import pixel_values
from tests.parity.test_image_encoder import TOWERS
from tests.parity.traced import TracedModel


@pytest.mark.parametrize(
    ("case", "keys"),
    [
        ("ViT-0", {"model_type": "vit"}),
        ("Dinov2-15", {"use_swiglu_ffn": True}),
        ("Siglip-towers", {"model_type": "siglip_vision_model", "vision_use_head": True}),
        ("CLIP-towers", {"model_type": "clip_vision_model", "projection_dim": 7}),
    ],
)
def test_a_folder_computes_the_same(case: str, keys: dict[str, Any], tmp_path: Path) -> None:
    source, output = written(tmp_path / "model", case, PROCESSOR), tmp_path / "out"
    tower = ["--recipe", TOWERS[case]] if case in TOWERS else []
    run("convert", source, "-o", output, *tower)
    config = json.loads((output / "config.json").read_text())
    assert {key: config[key] for key in keys} == keys
    model = TracedModel(open_checkpoint(output))
    pixels = pixel_values(CASES[case]["config"])
    for key, expected in RECORDED.items():
        name, _, result = key.partition("/")
        if name == case:
            entry, _, result = result.partition(".")
            found = model.run(entry, {"pixel_values": pixels})[result]
            assert np.linalg.norm(found - expected) < 2e-6 * np.linalg.norm(expected)
    processor = json.loads((output / "preprocessor_config.json").read_text())
    assert processor == PROCESSOR


def test_gguf_has_no_form_of_them(tmp_path: Path) -> None:
    source = written(tmp_path / "model", "ViT-0")
    told = run("convert", source, "-o", tmp_path / "x.gguf", code=4)
    assert "GGUF has no form of vit models" in told
    assert not (tmp_path / "x.gguf").exists()
