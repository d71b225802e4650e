"""Graphs of encoders of images in float64 beside what transformers recorded, in all their options.

``tests/data/record_image_encoders.py`` recorded it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.errors import ModelMismatch
from maxtool.weights.checkpoint import open_checkpoint
from tests.artifact.measure import error
from tests.data.seeded import pixel_values, tensors
from tests.parity.traced import TracedModel

FILE = Path(__file__).resolve().parents[1] / "data" / "image_encoders.npz"
RECORDED = dict(np.load(FILE))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())

# Models of both towers of which one is read.
TOWERS = {"Siglip-towers": "siglip_vision", "CLIP-towers": "clip_vision"}


def written(case: str, folder: Path, **changes: Any) -> Path:
    """The checkpoint of a case, with changes to its configuration."""
    known = CASES[case]
    (folder / "config.json").write_text(json.dumps(known["config"] | changes))
    save_file(tensors(known["shapes"], 1.0), folder / "model.safetensors")
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_recorded_outputs(case: str, tmp_path: Path) -> None:
    known = CASES[case]
    checkpoint = open_checkpoint(written(case, tmp_path))
    tower = TOWERS.get(case)
    model = TracedModel(checkpoint, recipe=tower, input_size=known["size"])
    pixels = pixel_values(known["config"], known["size"])
    wanted = {
        key.partition("/")[2]: array
        for key, array in RECORDED.items()
        if key.startswith(f"{case}/")
    }
    assert wanted
    for name, expected in wanted.items():
        entry, _, output = name.partition(".")
        found = model.run(entry, {"pixel_values": pixels})[output]
        assert found.shape == expected.shape
        assert error(found, expected) < 2e-6, name


@pytest.mark.reference
def test_reference_checkpoint(reference: Path) -> None:
    model = TracedModel(open_checkpoint(reference / "vit"))
    with np.load(reference / "vit" / "expected.npz") as expected:
        found = model.run("forward", {"pixel_values": expected["pixel_values"]})
        assert {*found} == {*expected} - {"pixel_values"}
        for name, array in found.items():
            assert error(array, expected[name]) < 1e-6


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"image_size": [12, 8]}, "image_size = [12, 8] is not a positive integer"),
        ({"patch_size": 5}, "embed.position"),
        ({"hidden_act": "prelu"}, "hidden_act: 'prelu' is not one of gelu, gelu_10"),
        ({"pooler_act": "prelu"}, "pooler_act: 'prelu' is not one of gelu, gelu_10"),
        ({"num_hidden_layers": 10**6}, "has 1000000 layers"),
        ({"rope_theta": 10000.0}, "rope_theta = 10000.0 is unknown"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch) as error:
        TracedModel(open_checkpoint(written("ViT-0", tmp_path, **changes)))
    assert problem in str(error.value)
