"""A checkpoint's values in a copy of an ONNX model, and a model's values by themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app

Array = np.ndarray[Any, Any]

BODY = "then_branch"


def maxtool(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done


def model(folder: Path, *, external: bool = False) -> Path:
    """A model with initializers of several types, in a branch too, and packed ones."""
    random = np.random.default_rng(0)
    weight = random.normal(size=(4, 32)).astype(np.float32)
    bias = random.normal(size=32).astype(np.float16)
    inner = numpy_helper.from_array(random.normal(size=(32,)).astype(np.float32), "inner")
    outer = helper.make_tensor_value_info("chosen", TensorProto.FLOAT, [32])
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["inner"], ["chosen"])], name, [], [outer], [inner]
        )
        for name, op in ((BODY, "Identity"), ("else_branch", "Neg"))
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weight"], ["y"]),
            helper.make_node("Cast", ["bias"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["y", "wide"], ["z"]),
            helper.make_node("If", ["flag"], ["picked"], name="pick", **branches),
            helper.make_node("Add", ["z", "picked"], ["sum"]),
            helper.make_node("Reshape", ["sum", "sizes"], ["result"]),
        ],
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, ["rows", 32])],
        [
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(bias, "bias"),
            helper.make_tensor("sizes", TensorProto.INT64, [2], [-1, 32]),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    beside = {"save_as_external_data": True, "location": "model.data", "size_threshold": 0}
    onnx.save(made, path, **(beside if external else {}))
    return path


def values(path: Path) -> dict[str, Array]:
    """The initializers of a model's graph, by the onnx package."""
    graph = onnx.load(path).graph
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def saved(path: Path, tensors: Mapping[str, Array]) -> Path:
    save_file(dict(tensors), path)
    return path


@pytest.mark.parametrize("external", [False, True])
def test_there_and_back(tmp_path: Path, external: bool) -> None:
    """Values that were changed outside are those of the copy; nothing else is another."""
    source = model(tmp_path / "model", external=external)
    weights = tmp_path / "weights.safetensors"
    maxtool("convert", source, "-o", weights)
    tensors = load_file(weights)
    assert tensors.keys() == {
        "weight",
        "bias",
        "sizes",
        "pick.then_branch.inner",
        "pick.else_branch.inner",
    }
    (tmp_path / "same").mkdir()
    maxtool("convert", weights, "--into", source, "-o", tmp_path / "same" / "model.onnx")
    for file in source.parent.iterdir():
        assert (tmp_path / "same" / file.name).read_bytes() == file.read_bytes()

    changed = {"weight": 2 * tensors["weight"], "pick.then_branch.inner": np.arange(32, dtype="f4")}
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "copy.onnx"
    maxtool("convert", saved(tmp_path / "c.safetensors", changed), "--into", source, "-o", copy)
    before, after = values(source), values(copy)
    np.testing.assert_array_equal(after["weight"], 2 * before["weight"])
    for name in ("bias", "sizes"):
        np.testing.assert_array_equal(after[name], before[name])
    (branch,) = (
        attribute.g
        for node in onnx.load(copy).graph.node
        for attribute in node.attribute
        if attribute.name == BODY
    )
    np.testing.assert_array_equal(numpy_helper.to_array(branch.initializer[0]), np.arange(32))
    onnx.checker.check_model(copy)


def test_values_are_cast_and_decoded(tmp_path: Path) -> None:
    """Types are those of the model, whatever the source has."""
    source = model(tmp_path / "model")
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "none")
    rows = values(source)["weight"]
    blocks = gguf.quantize(rows, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("bias", np.arange(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    copy = tmp_path / "copy.onnx"
    done = maxtool("convert", tmp_path / "q.gguf", "--into", source, "-o", copy)
    assert "cast to the model's types: bias" in done.stderr
    assert "initializers of the model that stay as they are: 3" in done.stderr
    after = values(copy)
    decoded = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(after["weight"], decoded)
    np.testing.assert_array_equal(after["bias"], np.arange(32, dtype=np.float16))


def test_what_does_not_fit_is_told_at_once(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    bad = {
        "weights": np.zeros(3, np.float32),
        "weight": np.zeros((32, 4), np.float32),
        "bias": np.zeros(32, np.int32),
        "sizes": np.array([32, -1]),
    }
    weights = saved(tmp_path / "bad.safetensors", bad)
    copy = tmp_path / "copy.onnx"
    said = maxtool("convert", weights, "--into", source, "-o", copy, code=4).stderr
    for problem in (
        "weights: no initializer is called so; did you mean 'weight'",
        "weight: shape [32, 4], and [4, 32] in the model",
        "bias: int32, and float16 in the model",
        "sizes: its values are packed in the model's protobuf",
    ):
        assert problem in said
    assert not copy.exists()


def test_values_that_a_type_does_not_hold(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    large = {"bias": np.full(32, 1e6, np.float32)}
    weights = saved(tmp_path / "large.safetensors", large)
    copy = tmp_path / "copy.onnx"
    said = maxtool("convert", weights, "--into", source, "-o", copy, code=4).stderr
    assert "bias" in said and "float16" in said
    assert not copy.exists()
    maxtool("convert", weights, "--into", source, "-o", copy, "--allow-nonfinite")
    assert np.isinf(values(copy)["bias"]).all()


def test_two_tensors_in_the_same_bytes(tmp_path: Path) -> None:
    """A payload that two tensors have cannot be written over for one of them."""
    source = model(tmp_path / "model", external=True)
    made = onnx.load(source, load_external_data=False)
    first = made.graph.initializer[0]
    twin = made.graph.initializer.add()
    twin.CopyFrom(first)
    twin.name = "twin"
    source.write_bytes(made.SerializeToString())
    weights = saved(tmp_path / "w.safetensors", {"weight": np.zeros((4, 32), np.float32)})
    copy = tmp_path / "copy.onnx"
    said = maxtool("convert", weights, "--into", source, "-o", copy, code=4).stderr
    assert "twin and weight: the model keeps them in the same bytes" in said


@pytest.mark.parametrize(
    ("options", "output", "said"),
    [
        (["--dtype", "float16", "--verify"], "copy.onnx", "--dtype, --verify cannot be given"),
        (["--quantize", "Q8_0"], "copy.onnx", "--quantize cannot be given"),
        ([], "copy.gguf", "the output ends in .gguf"),
        ([], "model/model.onnx", "would overwrite the source"),
    ],
)
def test_refusals(tmp_path: Path, options: list[str], output: str, said: str) -> None:
    source = model(tmp_path / "model")
    weights = saved(tmp_path / "w.safetensors", {"weight": np.zeros((4, 32), np.float32)})
    before = source.read_bytes()
    done = maxtool(
        "convert", weights, "--into", source, "-o", tmp_path / output, "--force", *options, code=2
    )
    assert said in done.stderr
    assert source.read_bytes() == before


def test_a_model_that_is_none(tmp_path: Path) -> None:
    weights = saved(tmp_path / "w.safetensors", {"weight": np.zeros((4, 32), np.float32)})
    done = maxtool("convert", weights, "--into", weights, "-o", tmp_path / "c.onnx", code=2)
    assert "--into takes an ONNX model, and this is safetensors" in done.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    weights = saved(tmp_path / "w.safetensors", {"weight": np.zeros((4, 32), np.float32)})
    copy = tmp_path / "copy.onnx"
    done = maxtool("convert", weights, "--into", source, "-o", copy, "--dry-run", "--json")
    told = json.loads(done.stdout)
    assert (told["format"], told["types"], told["dry_run"]) == ("onnx", {"F32": 1}, True)
    assert told["bytes"] == source.stat().st_size
    assert not copy.exists()


def placed(name: str, offset: int, count: int, location: str = "model.data") -> TensorProto:
    """A tensor of float32 that lies at an offset of a file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[count], data_location=1)
    beside = {"location": location, "offset": offset, "length": 4 * count}
    for key, value in beside.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def of_initializers(path: Path, *tensors: TensorProto) -> Path:
    """A model that has some initializers, and gives the first."""
    first = tensors[0]
    result = helper.make_tensor_value_info("y", first.data_type, [*first.dims])
    node = helper.make_node("Identity", [first.name], ["y"])
    graph = helper.make_graph([node], "graph", [], [result], tensors)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(helper.make_model(graph, ir_version=9).SerializeToString())
    return path


def test_tensors_in_parts_of_another(tmp_path: Path) -> None:
    """Writing over a part of another tensor is refused; the same values may stay."""
    source = tmp_path / "model" / "model.onnx"
    of_initializers(source, placed("all", 0, 64), placed("low", 16, 4), placed("high", 128, 4))
    (source.parent / "model.data").write_bytes(np.arange(64, dtype=np.float32).tobytes())
    weights = saved(tmp_path / "w.safetensors", {"high": np.zeros(4, np.float32)})
    (tmp_path / "to").mkdir()
    copy = tmp_path / "to" / "copy.onnx"
    said = maxtool("convert", weights, "--into", source, "-o", copy, code=4).stderr
    assert "all and high: the model keeps them in the same bytes" in said

    maxtool("convert", source, "-o", tmp_path / "own.safetensors")
    maxtool("convert", tmp_path / "own.safetensors", "--into", source, "-o", copy)
    assert copy.read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("bits", "same"), [([0x0000, 0x3C00], False), ([0x8000, 0x7E00], True)], ids=["zero", "nan"]
)
def test_bits_of_packed_values(tmp_path: Path, bits: list[int], same: bool) -> None:
    """Bits decide whether values are the same: a zero has a sign, and a NaN equals itself."""
    packed = TensorProto(name="packed", data_type=TensorProto.FLOAT16, dims=[2], int32_data=bits)
    source = of_initializers(tmp_path / "model.onnx", packed)
    given = np.array([0x8000, bits[1]], np.uint16).view(np.float16)
    weights = saved(tmp_path / "w.safetensors", {"packed": given})
    done = maxtool(
        "convert", weights, "--into", source, "-o", tmp_path / "o.onnx", code=0 if same else 4
    )
    assert same or "packed: its values are packed in the model's protobuf" in done.stderr


@pytest.mark.parametrize(
    ("named", "code", "said"),
    [
        ("https://host.invalid/model.onnx?sig=secret", 2, "--into takes a model on this machine"),
        ("model", 2, "--into takes an ONNX model, and this is a folder"),
        ("model/absent.onnx", 3, "no such file"),
    ],
)
def test_models_that_are_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, code: int, said: str
) -> None:
    model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "w.safetensors", {"weight": np.zeros((4, 32), np.float32)})
    done = maxtool("convert", "w.safetensors", "--into", named, "-o", "copy.onnx", code=code)
    assert said in done.stderr and "secret" not in done.stderr


def test_a_model_by_a_url_of_this_machine(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    weights = saved(tmp_path / "w.safetensors", {"weight": np.zeros((4, 32), np.float32)})
    maxtool("convert", weights, "--into", source.as_uri(), "-o", tmp_path / "copy.onnx")
    assert not values(tmp_path / "copy.onnx")["weight"].any()


def test_an_output_with_the_name_of_the_data(tmp_path: Path) -> None:
    source = of_initializers(tmp_path / "m" / "model.onnx", placed("w", 0, 4, "data.onnx"))
    (source.parent / "data.onnx").write_bytes(bytes(16))
    weights = saved(tmp_path / "w.safetensors", {"w": np.ones(4, np.float32)})
    said = maxtool("convert", weights, "--into", source, "-o", tmp_path / "data.onnx", code=2)
    assert "the model keeps its data in a file of that name" in said.stderr
    assert not (tmp_path / "data.onnx").exists()
