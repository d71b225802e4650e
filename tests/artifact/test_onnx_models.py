"""ONNX models, compiled from files and run by the loader."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner, Result

from maxtool.artifact.module_check import trials_of
from maxtool.artifact.onnx_build import prepare_onnx
from maxtool.artifact.request import OnnxRequest
from maxtool.cli.app import app
from maxtool.runtime import loader
from tests.importers.models import model, saved, value

node = helper.make_node
RANDOM = np.random.default_rng(3)
WEIGHTS = {
    "up": RANDOM.normal(size=(48, 96)).astype(np.float32),
    "down": RANDOM.normal(size=(96, 5)).astype(np.float32),
    "bias": RANDOM.normal(size=96).astype(np.float32),
}


def compiling(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compile", *map(str, arguments)])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = [
        node("MatMul", ["in/x", "up"], ["a"]),
        node("Add", ["a", "bias"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("MatMul", ["c", "down"], ["d"]),
        node("Slice", ["d", "starts", "ends", "axes"], ["y"]),
    ]
    numbers = {name: np.array([n]) for name, n in (("starts", 0), ("axes", 1))}
    inputs = [value("in/x", ["batch", 48]), value("ends", [1], TensorProto.INT64)]
    proto = model(nodes, inputs, ["y"], {**WEIGHTS, **numbers})
    return saved(proto, tmp_path_factory.mktemp("onnx"))


def test_a_model_computes_what_numpy_does(source: Path, tmp_path: Path) -> None:
    done = compiling(source, "-o", tmp_path / "out", "--fix", "ends=[3]", "--check")
    assert done.exit_code == 0, done.output
    compiled = loader.load(tmp_path / "out")
    x = RANDOM.normal(size=(7, 48)).astype(np.float32)
    result = compiled.run("forward", {"in_x": x})["y"]
    expected = np.maximum(x @ WEIGHTS["up"] + WEIGHTS["bias"], 0) @ WEIGHTS["down"]
    np.testing.assert_allclose(result, expected[:, :3], rtol=1e-4, atol=1e-4)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["onnx"]["opset.ai.onnx"] == 20
    assert manifest["build"]["options"]["fixed"]["ends"]["shape"] == [1]


def test_values_of_inputs_may_be_in_files(source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "ends.npy", np.array([2]))
    done = compiling(
        source, "-o", tmp_path / "out", "--fix", f"ends={tmp_path}/ends.npy", "--dry-run", "--json",
        "--shape", "in/x=4,48",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    entries = json.loads(done.stdout)["entries"]
    assert entries["forward"] == {
        "inputs": {"in_x": "float32[4, 48]"},
        "outputs": {"y": "float32[4, 2]"},
    }


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--fix", "ends"], 2, "it has no NAME="),
        (["--fix", "ends=[1,"], 2, "not JSON"),
        (["--fix", 'ends="a"'], 2, "a value is a number"),
        (["--fix", "end=[1]"], 2, "there is no such input"),
        (["--shape", "in/x=0"], 2, "a size is a number from 1"),
        (["--input", "x=float32[3]"], 2, "for a module (FILE.py:NAME), not an ONNX model"),
        (["--context", "8"], 2, "for a checkpoint, not an ONNX model"),
        (["--dtype", "bfloat16"], 2, "not an ONNX model"),
    ],
)
def test_what_is_refused(
    source: Path, tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    done = compiling(source, "-o", tmp_path / "out", *options)
    assert done.exit_code == code, done.output
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_sizes_beyond_a_table_are_refused(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["shape"], start=1),
        node("Slice", ["table", "zero", "shape"], ["rows"]),
        node("Add", ["x", "rows"], ["y"]),
    ]
    numbers = {"zero": np.array([0]), "table": np.arange(9, dtype=np.float32)}
    path = saved(model(nodes, [value("x", ["batch", "seq"])], ["y"], numbers), tmp_path)
    done = compiling(path, "-o", tmp_path / "out", "--check")
    assert done.exit_code == 0, done.output
    compiled = loader.load(tmp_path / "out")
    x = np.zeros((2, 9), np.float32)
    np.testing.assert_array_equal(compiled.run("forward", {"x": x})["y"][1], np.arange(9))
    with pytest.raises(loader.RunError, match="seq is 10; the model takes at most 9"):
        compiled.run("forward", {"x": np.zeros((2, 10), np.float32)})


def test_what_follows_from_two_sizes_is_large_enough(tmp_path: Path) -> None:
    """The best ten of a detector's places: heights and widths are held to that, not batches."""
    nodes = [
        node("MaxPool", ["x"], ["small"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["small"], ["flat"]),
        node("TopK", ["flat", "ten"], ["y", "places"]),
    ]
    inputs = [value("x", ["batch", 1, "h", "w"])]
    path = saved(model(nodes, inputs, ["y", "places"], {"ten": np.array([10])}), tmp_path)
    done = compiling(path, "-o", tmp_path / "out", "--check")
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["entries"]["forward"]["least"] == {"batch": 0, "h": 8, "w": 8}
    compiled = loader.load(tmp_path / "out")
    x = RANDOM.permutation(72).reshape(1, 1, 9, 8).astype(np.float32)
    pooled = x[0, 0, :8].reshape(4, 2, 4, 2).max((1, 3)).reshape(-1)
    result = compiled.run("forward", {"x": x})["y"]
    np.testing.assert_array_equal(result[0], np.sort(pooled)[:-11:-1])
    with pytest.raises(loader.RunError, match="h is 6; the model takes at least 8"):
        compiled.run("forward", {"x": np.zeros((1, 1, 6, 60), np.float32)})


@pytest.mark.peers
def test_the_original_model_is_compared_with(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = compiling(
        source, "-o", tmp_path / "out", "--fix", "ends=[3]", "--check", "onnxruntime"
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "the original model in onnxruntime (the reading, too)" in done.stdout
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["check"]["against"] == "onnxruntime"


@pytest.mark.peers
def test_sizes_that_the_original_model_refuses_are_left_out(tmp_path: Path) -> None:
    """A mask has a name of its own for its length, and is read at the places of the text."""
    pytest.importorskip("onnxruntime")
    nodes = [
        node("Shape", ["x"], ["seq"], start=1),
        node("Range", ["zero", "length", "one"], ["places"]),
        node("Squeeze", ["seq"], ["length"]),
        node("Gather", ["mask", "places"], ["read"], axis=1),
        node("Mul", ["x", "read"], ["y"]),
    ]
    numbers = {"zero": np.array(0), "one": np.array(1)}
    inputs = [value("x", ["batch", "seq"]), value("mask", ["masks", "total"])]
    path = saved(model(nodes, inputs, ["y"], numbers), tmp_path)
    done = compiling(path, "-o", tmp_path / "out", "--check", "onnxruntime")
    assert done.exit_code == 0, done.output
    assert "the original model in onnxruntime" in done.stdout


@pytest.mark.parametrize("seq", ["seq", 100])
def test_what_short_lengths_mask_is_compared_too(seq: str | int, tmp_path: Path) -> None:
    """The first frames of each signal are kept, as many as 16 are in its length."""
    nodes = [
        node("Shape", ["x"], ["seq"], start=1),
        node("Squeeze", ["seq"], ["length"]),
        node("Range", ["zero", "length", "one"], ["places"]),
        node("Div", ["lengths", "frame"], ["kept"]),
        node("Unsqueeze", ["kept", "last"], ["each"]),
        node("Less", ["places", "each"], ["mask"]),
        node("Where", ["mask", "x", "none"], ["y"]),
    ]
    integers = {"zero": np.array(0), "one": np.array(1), "last": np.array([-1])}
    numbers = {**integers, "frame": np.array(16), "none": np.float32(0)}
    inputs = [value("x", [2, seq]), value("lengths", [2], TensorProto.INT64)]
    path = saved(model(nodes, inputs, ["y"], numbers), tmp_path)
    planned = prepare_onnx(OnnxRequest(source=path, output=tmp_path / "out", check=True))
    assert any(trial.expected.any() for trial in trials_of(planned.contents).each)


@pytest.mark.peers
def test_a_call_that_onnxruntime_does_not_survive_is_left_out(tmp_path: Path) -> None:
    """onnxruntime ends the process where an LSTM has a batch of none."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    weights = {
        "w": random.normal(size=(1, 16, 3)).astype(np.float32),
        "r": random.normal(size=(1, 16, 4)).astype(np.float32),
    }
    proto = model(
        [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4)],
        [value("x", [5, "batch", 3])], ["y"], weights,
    )  # fmt: skip
    done = compiling(saved(proto, tmp_path), "-o", tmp_path / "out", "--check", "onnxruntime")
    assert done.exit_code == 0, done.output
    assert "the original model in onnxruntime" in done.stdout


def test_sums_of_bytes_are_exact_there_on_any_processor(tmp_path: Path) -> None:
    """Sums that onnxruntime saturates by itself where there is no VNNI."""
    pytest.importorskip("onnxruntime")
    weight = np.random.default_rng(0).integers(-128, 128, (70, 60)).astype(np.int8)
    proto = model(
        [node("MatMulInteger", ["x", "w"], ["y"])],
        [value("x", [7, 70], TensorProto.UINT8)], ["y"], {"w": weight},
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    done = compiling(saved(proto, tmp_path), "-o", tmp_path / "out", "--check", "onnxruntime")
    assert done.exit_code == 0, done.output


def test_onnxruntime_is_named_where_it_is_missing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxtool.artifact.original_onnx.find_spec", lambda _: None)
    done = compiling(source, "-o", tmp_path / "out", "--check", "onnxruntime")
    assert done.exit_code == 6
    assert "pip install 'maxtool[onnxruntime]'" in done.stderr


def test_a_checkpoint_is_not_compared_with_onnxruntime(tmp_path: Path) -> None:
    done = compiling(tmp_path, "-o", tmp_path / "out", "--check", "onnxruntime")
    assert done.exit_code == 2
    assert "--check onnxruntime: for an ONNX model, not a checkpoint" in done.stderr
