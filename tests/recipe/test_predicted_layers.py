"""Layers that predict further tokens: llama.cpp's files count them, as the last ones."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import MaxtoolError
from maxtool.recipe import Plan, load_recipe, plan
from maxtool.weights import Checkpoint, open_checkpoint
from tests.parity.traced import TracedModel
from tests.variants.gguf_files import rewritten
from tests.variants.rows import Files, inputs, rows

# Families, and recipes of their files.
PREDICTING = ("exaone_moe", "glm4_moe", "hy_v3", "qwen3_next", "solar_open")
PREDICTING += ("deepseek_v32", "glm_moe_dsa")
FAMILIES = {name: name for name in PREDICTING}
FAMILIES |= {"qwen3_5_text": "qwen3_5", "glm4_moe_lite": "deepseek_v3"}
# Some of what llama.cpp's converter writes of such a layer.
PARTS = ("attn_norm.weight", "attn_q.weight", "nextn.eh_proj.weight", "nextn.enorm.weight")


def planned(checkpoint: Checkpoint, family: str) -> Plan:
    return plan(load_recipe(FAMILIES[family]), checkpoint)


def with_predicted(file: Checkpoint, output: Path, count: int = 1) -> Checkpoint:
    """The file with so many layers behind the last, and keys that count them."""
    arch = file.metadata["general.architecture"]
    layers = int(file.metadata[f"{arch}.block_count"])
    keys = dict(file.metadata)
    keys[f"{arch}.block_count"] = np.uint32(layers + count)
    keys[f"{arch}.nextn_predict_layers"] = np.uint32(count)
    if (listed := keys.get(f"{arch}.attention.recurrent_layers")) is not None:
        keys[f"{arch}.attention.recurrent_layers"] = np.array([*listed, *[False] * count])
    names = [f"blk.{layers + i}.{part}" for i in range(count) for part in PARTS]
    return rewritten(file, keys, output, names)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """A family that has such layers."""
    return str(request.param)


@pytest.fixture
def converted(family: str, tmp_path: Path) -> Checkpoint:
    """A recorded model of the family, as a GGUF file."""
    for row in rows(family):
        try:
            source = Files(tmp_path / "hf").checkpoint(row)
            convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
        except MaxtoolError:  # GGUF has no form of some options
            continue
        return open_checkpoint(tmp_path / "model.gguf")
    raise AssertionError("none of the recorded models has a form in GGUF")


def test_they_are_left_out(family: str, converted: Checkpoint, tmp_path: Path) -> None:
    usual = planned(converted, family)
    found = planned(with_predicted(converted, tmp_path / "more.gguf", count=2), family)
    found.check()
    assert found.config == usual.config
    layers = usual.config["n_layers"]
    note = f"layer {layers}, {layers + 1} predicts further tokens and is not computed: 8 tensors"
    assert note in found.notes
    assert [name for name in found.parameters if name not in usual.parameters] == []


def test_what_is_computed_is_the_same(tmp_path: Path) -> None:
    row = next(rows("qwen3_next"))
    source = Files(tmp_path / "hf").checkpoint(row)
    convert(prepare(Request(source.path, tmp_path / "model.gguf", name="x")))
    file = with_predicted(open_checkpoint(tmp_path / "model.gguf"), tmp_path / "more.gguf")
    ids = inputs(row)["input_ids"]
    expected = TracedModel(open_checkpoint(tmp_path / "model.gguf")).forward(ids)
    np.testing.assert_array_equal(TracedModel(file).forward(ids), expected)


def test_a_layer_that_is_missing(family: str, converted: Checkpoint, tmp_path: Path) -> None:
    """Refuse a file that has fewer layers than it says."""
    arch = converted.metadata["general.architecture"]
    layers = int(converted.metadata[f"{arch}.block_count"])
    keys = {**converted.metadata, f"{arch}.block_count": np.uint32(layers + 1)}
    with pytest.raises(MaxtoolError):
        planned(rewritten(converted, keys, tmp_path / "fewer.gguf"), family).check()


def test_more_layers_than_are_said(family: str, converted: Checkpoint, tmp_path: Path) -> None:
    """Refuse a file whose keys count fewer layers than it has: none of them may go unread."""
    file = with_predicted(converted, tmp_path / "more.gguf", count=2)
    arch = file.metadata["general.architecture"]
    keys = {**file.metadata, f"{arch}.nextn_predict_layers": np.uint32(1)}
    keys[f"{arch}.block_count"] = np.uint32(file.metadata[f"{arch}.block_count"] - 1)
    found = planned(dataclasses.replace(file, metadata=keys), family)
    last = int(file.metadata[f"{arch}.block_count"]) - 1
    assert {line.split()[0] for line in found.unused} == {f"blk.{last}.{part}" for part in PARTS}


def test_folders_hold_them_by_number(tmp_path: Path) -> None:
    """Leave out the layer behind the last of GLM 4.5, whatever its number is."""
    from safetensors.numpy import load_file, save_file

    source = Files(tmp_path).checkpoint(next(rows("glm4_moe")))
    usual = planned(source, "glm4_moe")
    (file,) = source.path.glob("*.safetensors")
    layer = usual.config["n_layers"]
    more = {f"model.layers.{layer}.eh_proj.weight": np.ones((2, 4), np.float32)}
    save_file(load_file(file) | more, file)
    keys = json.loads((source.path / "config.json").read_text()) | {"num_nextn_predict_layers": 1}
    (source.path / "config.json").write_text(json.dumps(keys))
    found = planned(open_checkpoint(source.path), "glm4_moe")
    found.check()
    assert found.dropped == [*usual.dropped, *more]


def test_folders_hold_them_apart(tmp_path: Path) -> None:
    """Leave out what Nemotron 3 keeps of them beside its layers."""
    row = copy.deepcopy(next(rows("nemotron_h_moe")))  # the tests share what is recorded
    row.config.update(num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E")
    row.shapes["mtp.layers.0.eh_proj.weight"] = [2, 4]
    checkpoint = Files(tmp_path).checkpoint(row)
    result = plan(load_recipe("nemotron_h_moe"), checkpoint)
    result.check()
    row.config["num_nextn_predict_layers"] = 2
    with pytest.raises(MaxtoolError, match="num_nextn_predict_layers = 2 is not supported"):
        plan(load_recipe("nemotron_h_moe"), Files(tmp_path / "two").checkpoint(row))
