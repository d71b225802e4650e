"""Graphs of convolutional networks in float64 beside what transformers recorded, in all options.

``tests/data/record_convnets.py`` recorded it.
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
from tests.data.seeded import network_tensors, pixel_values
from tests.parity.traced import TracedModel

FILE = Path(__file__).resolve().parents[1] / "data" / "convnets.npz"
RECORDED = dict(np.load(FILE))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())


def written(
    case: str, folder: Path, extra: dict[str, np.ndarray[Any, Any]] | None = None, **changes: Any
) -> Path:
    """The checkpoint of a case, with further tensors and changes to its configuration."""
    known = CASES[case]
    (folder / "config.json").write_text(json.dumps(known["config"] | changes))
    values = network_tensors(known["shapes"]) | (extra or {})
    save_file(values, folder / "model.safetensors")
    return folder


def recorded(case: str) -> dict[str, Any]:
    """The outputs of a case by name."""
    parts = ((key.partition("/"), array) for key, array in RECORDED.items())
    return {output: array for (name, _, output), array in parts if name == case}


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_recorded_outputs(case: str, tmp_path: Path) -> None:
    known = CASES[case]
    model = TracedModel(open_checkpoint(written(case, tmp_path)), input_size=known["size"])
    pixels = pixel_values(known["config"], known["size"])
    wanted = recorded(case)
    assert wanted
    for name, expected in wanted.items():
        entry, _, output = name.partition(".")
        found = model.run(entry, {"pixel_values": pixels})[output]
        assert found.shape == expected.shape
        assert np.linalg.norm(found - expected) < 2e-6 * np.linalg.norm(expected), name


NORMS = {"hidden_states_norms.stage2.weight": np.ones(12, np.float32)}
VARIANCE = "embedder.embedder.normalization.running_var"


@pytest.mark.parametrize(
    ("case", "changes", "problem"),
    [
        ("ResNet-0", {"hidden_act": "prelu"}, "hidden_act: 'prelu' is not one of gelu, gelu_10"),
        ("ResNet-0", {"layer_type": "wide"}, "layer_type 'wide': supported are basic, bottleneck"),
        ("ResNet-0", {"depths": []}, "depths = [] is not a list of positive integers"),
        ("ResNet-0", {"depths": [2, 0]}, "depths = [2, 0] is not a list of positive integers"),
        ("ResNet-0", {"depths": 2}, "depths = 2 is not a list of positive integers"),
        ("ResNet-0", {"depths": [2, 10**9]}, "has 1000000002 layers"),
        ("ResNet-0", {"depths": [3]}, "depths has 1 values for 2 stages"),
        ("ResNet-0", {"hidden_sizes": [8, 3]}, "a bottleneck of 3 channels"),
        ("ResNet-0", {"width_per_group": 4}, "width_per_group = 4 is unknown"),
        ("ConvNext-0", {"num_stages": 3}, "n_stages is 3, and depths has 2 values"),
        ("ConvNext-0", {"patch_size": [4, 2]}, "patch_size = [4, 2] is not a positive integer"),
        ("ConvNext-0", {"image_size": 7}, "images of 7 pixels have 1 rows of patches"),
        ("ConvNext-0", {"image_size": 1 << 15}, "are larger than 16384"),
        ("ConvNextV2-0", {"layer_scale_init_value": 1e-6}, "layer_scale_init_value = 1e-06"),
    ],
)
def test_what_is_refused(case: str, changes: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch) as error:
        TracedModel(open_checkpoint(written(case, tmp_path, **changes)))
    assert problem in str(error.value)


def test_a_backbone_with_norms_of_several_stages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match="the norms of a backbone"):
        TracedModel(open_checkpoint(written("ConvNext-0", tmp_path, NORMS)))


@pytest.mark.parametrize("number", [-1.0, float("nan")])
def test_a_variance_that_is_none(number: float, tmp_path: Path) -> None:
    folder = written("ResNet-0", tmp_path, {VARIANCE: np.full(6, number, np.float32)})
    model = TracedModel(open_checkpoint(folder), input_size=8)
    with pytest.raises(ModelMismatch, match="the running variance of its batch norm is not 0"):
        model.run("embed", {"pixel_values": pixel_values({"num_channels": 3}, 8)})
