"""Damaged files of torchao: metadata and tensors that contradict each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.recipe import find_recipe, plan
from maxtool.weights import Checkpoint, open_checkpoint

SOURCE = Path(__file__).resolve().parents[1] / "data" / "quantized" / "torchao-int4-in-int8"
MODULE = "model.layers.0.mlp.up_proj"
WEIGHT = f"{MODULE}.weight"

Tensors = dict[str, NDArray[Any]]


@pytest.fixture
def tensors() -> Tensors:
    return dict(load_file(SOURCE / "model.safetensors"))


@pytest.fixture
def metadata() -> dict[str, str]:
    with safe_open(SOURCE / "model.safetensors", "np") as file:
        return dict(file.metadata())


def saved(folder: Path, tensors: Tensors, metadata: dict[str, str]) -> Checkpoint:
    save_file(tensors, folder / "model.safetensors", metadata)
    (folder / "config.json").write_bytes((SOURCE / "config.json").read_bytes())
    return open_checkpoint(folder)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("_data", "block_size"), [1, 32], "do not say the block of its scales"),
        (("_data", "block_size"), None, "do not say the block of its scales"),
        (("_data", "dtype", "_data"), "int8", "decodes to int8; supported: float16"),
        (("_data", "dtype"), None, "decodes to None"),
        (("_data",), [], "do not say the block"),
    ],
)
def test_metadata_of_a_weight(
    tmp_path: Path,
    tensors: Tensors,
    metadata: dict[str, str],
    path: tuple[str, ...],
    value: object,
    message: str,
) -> None:
    facts: Any = json.loads(metadata[WEIGHT])
    table = facts
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    metadata[WEIGHT] = json.dumps(facts)
    with pytest.raises(MalformedFile, match=message):
        saved(tmp_path, tensors, metadata)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"_type": "Tensor"}', "{" * 20000])
def test_metadata_that_say_nothing(
    tmp_path: Path, tensors: Tensors, metadata: dict[str, str], text: str
) -> None:
    metadata[WEIGHT] = text
    with pytest.raises(MalformedFile, match=f"metadata of the file say nothing of {WEIGHT}"):
        saved(tmp_path, tensors, metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_type": "Int4Tensor"}, "class 'Int4Tensor'; supported: Int8Tensor"),
        ({"_type": 3}, "class 3; supported"),
        ({"_tensor_data_names": ["qdata", "act_pre_scale"]}, "supported: qdata, scale, zero_point"),
        ({"_tensor_data_names": None}, "is made of None"),
    ],
)
def test_classes_that_are_not_supported(
    tmp_path: Path,
    tensors: Tensors,
    metadata: dict[str, str],
    change: dict[str, Any],
    message: str,
) -> None:
    metadata[WEIGHT] = json.dumps(json.loads(metadata[WEIGHT]) | change)
    checkpoint = saved(tmp_path, tensors, metadata)
    with pytest.raises(ConfigurationError, match=message):
        plan(find_recipe(checkpoint), checkpoint)


def test_a_zero_point_that_the_metadata_do_not_name(
    tmp_path: Path, tensors: Tensors, metadata: dict[str, str]
) -> None:
    facts = json.loads(metadata[WEIGHT])
    metadata[WEIGHT] = json.dumps(facts | {"_tensor_data_names": ["qdata", "scale"]})
    with pytest.raises(MalformedFile, match="has a zero point, and the metadata say otherwise"):
        saved(tmp_path, tensors, metadata)


@pytest.mark.parametrize(
    ("part", "array", "message"),
    [
        ("scale", np.ones((64, 3), np.float32), r"\[64, 3\], for \[64, 32\]"),
        ("zero_point", np.ones((64, 1), np.int8), r"zero_point has the shape \[64, 1\]"),
        ("qdata", np.ones((64, 32), np.uint8), "qdata is U8, not int8"),
        ("scale", None, "lacks weight_scale"),
        ("zero_point", None, "has no zero point, and the metadata say otherwise"),
    ],
)
def test_tensors_that_misfit(
    tmp_path: Path,
    tensors: Tensors,
    metadata: dict[str, str],
    part: str,
    array: Any,
    message: str,
) -> None:
    del tensors[f"{MODULE}._weight_{part}"]
    if array is not None:
        tensors[f"{MODULE}._weight_{part}"] = array
    with pytest.raises(MalformedFile, match=message):
        saved(tmp_path, tensors, metadata)
