"""Damaged files of bitsandbytes: text, sizes and tables that contradict each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from maxtool.errors import MalformedFile
from maxtool.weights import Checkpoint, open_checkpoint

SOURCE = Path(__file__).resolve().parents[1] / "data" / "quantized" / "bnb-nf4"
WEIGHT = "model.layers.0.mlp.up_proj.weight"
STATE = f"{WEIGHT}.quant_state.bitsandbytes__nf4"

Tensors = dict[str, NDArray[Any]]


def text(content: object) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(content).encode(), np.uint8)


@pytest.fixture
def tensors() -> Tensors:
    """The tensors of one weight, NF4 with nested factors."""
    stored = load_file(SOURCE / "model.safetensors")
    return {name: array for name, array in stored.items() if name.startswith(WEIGHT)}


@pytest.fixture
def state(tensors: Tensors) -> dict[str, Any]:
    return dict(json.loads(tensors[STATE].tobytes()))


def saved(folder: Path, tensors: Tensors) -> Checkpoint:
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_bytes((SOURCE / "config.json").read_bytes())
    return open_checkpoint(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shape", None),
        ("shape", [64, -64]),
        ("shape", [64, "64"]),
        ("shape", [1 << 39, 1 << 39]),
        ("blocksize", 0),
        ("blocksize", 64.0),
        ("dtype", "float8"),
        ("dtype", ["float32"]),
        ("quant_type", "fp4"),
        ("nested_blocksize", 0),
        ("nested_offset", float("nan")),
        pytest.param("nested_offset", 10**400, id="400 digits"),
        ("nested_offset", 1e39),
        ("nested_offset", True),
        ("nested_dtype", "float16"),
        ("unknown", 1),
    ],
)
def test_the_text_beside_a_weight(
    tmp_path: Path, tensors: Tensors, state: dict[str, Any], key: str, value: object
) -> None:
    tensors[STATE] = text(state | {key: value})
    with pytest.raises(MalformedFile, match=f"has an unknown or wrong {key}"):
        saved(tmp_path, tensors)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b'{"a": 1, "a": 2}', bytes(5000)])
def test_text_that_is_not_json(tmp_path: Path, tensors: Tensors, raw: bytes) -> None:
    tensors[STATE] = np.frombuffer(raw, np.uint8)
    with pytest.raises(MalformedFile, match="do not fit each other"):
        saved(tmp_path, tensors)


@pytest.mark.parametrize(
    ("ending", "array", "message"),
    [
        ("", np.zeros((7, 1), np.uint8), r"has 7 bytes, for \[64, 64\] of 4 bits"),
        (".absmax", np.zeros(63, np.uint8), r"absmax has the shape \[63\]"),
        (".absmax", np.zeros(64, np.float32), "absmax is F32, not uint8"),
        (".quant_map", np.zeros(15, np.float32), r"quant_map has the shape \[15\]"),
        (".nested_quant_map", np.zeros(16, np.float32), r"nested_quant_map has the shape \[16\]"),
        (".nested_absmax", None, "nested_absmax is missing"),
        (".absmax", None, r"lacks weight\.absmax"),
    ],
)
def test_tensors_that_misfit(
    tmp_path: Path, tensors: Tensors, ending: str, array: Any, message: str
) -> None:
    del tensors[f"{WEIGHT}{ending}"]
    if array is not None:
        tensors[f"{WEIGHT}{ending}"] = array
    with pytest.raises(MalformedFile, match=message):
        saved(tmp_path, tensors)


def test_another_table_of_values(tmp_path: Path, tensors: Tensors) -> None:
    tensors[f"{WEIGHT}.quant_map"] = np.linspace(-1, 1, 16, dtype=np.float32)
    checkpoint = saved(tmp_path, tensors)
    with pytest.raises(MalformedFile, match="does not hold the values of nf4") as caught:
        checkpoint.read(WEIGHT)
    assert caught.value.tensor == WEIGHT


def test_bytes_stored_as_elements_of_another_type(tmp_path: Path, tensors: Tensors) -> None:
    expected = open_checkpoint(SOURCE).read(WEIGHT).data
    tensors[WEIGHT] = tensors[WEIGHT].reshape(-1).view(ml_dtypes.bfloat16)
    read = saved(tmp_path, tensors).read(WEIGHT)
    assert read.data.tobytes() == expected.tobytes()


def test_a_block_longer_than_the_weight(
    tmp_path: Path, tensors: Tensors, state: dict[str, Any]
) -> None:
    large = {"blocksize": 1 << 39, "nested_blocksize": 1 << 39}
    tensors[STATE] = text(state | large)
    tensors[f"{WEIGHT}.absmax"] = np.array([200], np.uint8)
    factor = tensors[f"{WEIGHT}.nested_quant_map"][200] * tensors[f"{WEIGHT}.nested_absmax"][0]
    factor += np.float32(state["nested_offset"])
    pairs = tensors[WEIGHT].reshape(-1)
    numbers = np.stack((pairs >> 4, pairs & 15), axis=1).reshape(64, 64)
    expected = (tensors[f"{WEIGHT}.quant_map"][numbers] * factor).astype(ml_dtypes.bfloat16)
    assert saved(tmp_path, tensors).read(WEIGHT).data.tobytes() == expected.tobytes()


def test_headers_alone_show_what_is_stored() -> None:
    checkpoint = open_checkpoint(SOURCE, payloads=False)
    assert checkpoint.tensors[WEIGHT].type_name == "U8"
    assert f"{WEIGHT}.absmax" in checkpoint.tensors
