"""BitNet's weights of three values: what is not recorded from transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.dtype import DType
from maxtool.errors import MalformedFile
from maxtool.weights import Checkpoint, open_checkpoint

METHOD = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
NAME = "a_proj.weight"


def written(folder: Path, tensors: dict[str, np.ndarray[Any, Any]], **keys: object) -> Checkpoint:
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": {**METHOD, **keys}}))
    return open_checkpoint(folder)


def scaled(weight: np.ndarray[Any, Any], *scale: float) -> dict[str, np.ndarray[Any, Any]]:
    return {NAME: weight, f"{NAME}_scale": np.array(scale, np.float32)}


def test_rows_lie_a_quarter_apart(tmp_path: Path) -> None:
    """Put rows 0, 2, 4 and 6 into the first byte, the lowest bits first."""
    packed = np.array([[0b10_01_00_10], [0b00_00_01_01]], np.uint8)
    checkpoint = written(tmp_path, scaled(packed, 0.5))
    info = checkpoint.tensors[NAME]
    assert (info.shape, info.dtype, info.type_name) == ((8, 1), DType.float32, "TERNARY")
    rows = checkpoint.read(NAME).data.ravel()
    np.testing.assert_array_equal(rows, np.array([1, 0, -1, 0, 0, -1, 1, -1]) * 0.5)


def test_bitlinear_divides_by_its_scale(tmp_path: Path) -> None:
    packed = np.array([[0b10_01_00_10]], np.uint8)
    checkpoint = written(tmp_path, scaled(packed, 3.0), linear_class="bitlinear")
    third = np.float32(1) / np.float32(3)
    np.testing.assert_array_equal(checkpoint.read(NAME).data.ravel(), [third, -third, 0, third])


def test_numbers_that_are_not_packed(tmp_path: Path) -> None:
    """Read what transformers saves of a model whose numbers it has unpacked."""
    weight = np.array([[1, 0], [-1, 1], [0, 0]], ml_dtypes.bfloat16)
    checkpoint = written(tmp_path, scaled(weight, 1.5))
    np.testing.assert_array_equal(checkpoint.read(NAME).data, [[1.5, 0], [-1.5, 1.5], [0, 0]])


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"quantization_mode": "online"}, "quantization_mode = 'online' (supported: offline)"),
        ({"use_rms_norm": True}, "use_rms_norm = True (supported: False)"),
        ({"linear_class": "linear"}, "(supported: bitlinear, autobitlinear)"),
        ({"group": 3}, "group = 3 (unknown)"),
    ],
)
def test_keys_that_are_not_supported(tmp_path: Path, keys: dict[str, object], problem: str) -> None:
    assert problem in str(
        written(tmp_path, scaled(np.zeros((1, 1), np.uint8), 1), **keys).unsupported
    )


@pytest.mark.parametrize(
    ("tensors", "keys", "problem"),
    [
        (scaled(np.zeros((1, 2), np.int8), 1), {}, "not uint8"),
        (scaled(np.zeros((1, 2), np.uint8), 1, 2), {}, "the shape [2], not [1]"),
        (scaled(np.zeros(4, np.uint8), 1), {}, "not that of a matrix"),
        ({f"{NAME}_scale": np.ones(1, np.float32)}, {}, "lacks weight"),
        (scaled(np.ones((1, 2), np.float32), 1), {"linear_class": "bitlinear"}, "not uint8"),
    ],
)
def test_tensors_that_do_not_fit(
    tmp_path: Path, tensors: dict[str, Any], keys: dict[str, object], problem: str
) -> None:
    with pytest.raises(MalformedFile) as caught:
        written(tmp_path, tensors, **keys)
    assert problem in str(caught.value)


def test_a_number_that_is_none_of_three(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, scaled(np.array([[0b11]], np.uint8), 1))
    with pytest.raises(MalformedFile, match="a weight is 2, and not one of -1, 0 and 1"):
        checkpoint.read(NAME)
