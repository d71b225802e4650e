"""Sizes of 0 that a call brings, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.runtime import loader
from tests.importers.beside_onnxruntime import in_onnxruntime, require_equal
from tests.importers.models import model, saved, value

pytestmark = pytest.mark.peers
node = helper.make_node
RANDOM = np.random.default_rng(8)
INT = TensorProto.INT64
HEADS, WIDTH = 2, 4


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def decoder() -> onnx.ModelProto:
    """A layer of attention with a cache, as exported decoders have it: the past is an input."""
    nodes = [
        node("MatMul", ["x", "w"], ["flat"]),
        node("Reshape", ["flat", "by_head"], ["split"]),
        node("Transpose", ["split"], ["new"], perm=[0, 2, 1, 3]),
        node("Concat", ["past", "new"], ["present"], axis=2),
        node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["new", "turned"], ["scores"]),
        node("Where", ["mask", "scores", "low"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "present"], ["y"]),
    ]
    numbers = {
        "w": floats(6, HEADS * WIDTH),
        "by_head": np.array([0, 0, HEADS, WIDTH]),
        "low": np.array(-1e9, np.float32),
    }
    inputs = [
        value("x", ["batch", "seq", 6]),
        value("past", ["batch", HEADS, "before", WIDTH]),
        value("mask", ["batch", 1, 1, "before + seq"], TensorProto.BOOL),
    ]
    return model(nodes, inputs, ["y", "present"], numbers)


def call(batch: int, seq: int, before: int) -> dict[str, np.ndarray]:
    return {
        "x": floats(batch, seq, 6),
        "past": floats(batch, HEADS, before, WIDTH),
        "mask": np.ones((batch, 1, 1, before + seq), bool),
    }


def test_a_decoder_begins_with_an_empty_cache(tmp_path: Path) -> None:
    """Compiled from the command line, as a user does it; the same code has longer caches."""
    pytest.importorskip("onnxruntime")
    proto, out = decoder(), tmp_path / "out"
    arguments = ["compile", saved(proto, tmp_path), "-o", out, "--check", "onnxruntime"]
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    compiled = loader.load(out)
    for sizes in ((1, 3, 0), (2, 1, 4), (1, 0, 2), (0, 3, 0)):
        given = call(*sizes)
        results = compiled.run("forward", given)
        for name, wanted in in_onnxruntime(proto, given).items():
            np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=1e-5)


def test_sizes_that_an_operator_needs_are_named_at_the_call(tmp_path: Path) -> None:
    nodes = [node("ArgMax", ["x"], ["y"], axis=1)]
    proto = model(nodes, [value("x", ["batch", "seq"])], [])
    proto.graph.output.append(value("y", None, INT))
    done = CliRunner().invoke(
        app, ["compile", str(saved(proto, tmp_path)), "-o", str(tmp_path / "out"), "--check"]
    )
    assert done.exit_code == 0, done.output
    compiled = loader.load(tmp_path / "out")
    assert compiled.run("forward", {"x": floats(0, 3)})["y"].shape == (0, 1)
    with pytest.raises(loader.RunError, match=r"whose sizes are at least 1|seq is 0"):
        compiled.run("forward", {"x": floats(3, 0)})


def test_one_of_two_texts_that_are_joined_is_not_empty(tmp_path: Path) -> None:
    """The place of a maximum needs an element of either: the first input is held to have one."""
    nodes = [node("Concat", ["x", "z"], ["xz"], axis=1), node("ArgMax", ["xz"], ["y"], axis=1)]
    proto = model(nodes, [value("x", ["batch", "seq"]), value("z", ["batch", "before"])], [])
    proto.graph.output.append(value("y", None, INT))
    done = CliRunner().invoke(
        app, ["compile", str(saved(proto, tmp_path)), "-o", str(tmp_path / "out"), "--check"]
    )
    assert done.exit_code == 0, done.output
    compiled = loader.load(tmp_path / "out")
    given = {"x": floats(2, 3), "z": floats(2, 0)}
    np.testing.assert_array_equal(
        compiled.run("forward", given)["y"], given["x"].argmax(1)[:, None]
    )


SUMS = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceLogSumExp")


@pytest.mark.parametrize("op", SUMS)
def test_reductions_of_nothing(op: str, tmp_path: Path) -> None:
    nodes = [node(op, ["x", "axes"], ["y"], keepdims=0)]
    proto = model(nodes, [value("x", ["n", "k"])], ["y"], {"axes": np.array([1])})
    require_equal(proto, [{"x": floats(*shape)} for shape in ((3, 0), (0, 3), (2, 3))], tmp_path)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_of_no_whole_numbers(op: str, tmp_path: Path) -> None:
    nodes = [node(op, ["x", "axes"], ["y"])]
    proto = model(nodes, [value("x", ["n", "k"], INT)], [], {"axes": np.array([1])})
    proto.graph.output.append(value("y", None, INT))
    require_equal(proto, {"x": np.zeros((3, 0), np.int64)}, tmp_path)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_over_nothing(op: str, tmp_path: Path) -> None:
    proto = model([node(op, ["x"], ["y"], axis=1)], [value("x", ["n", "k", 2])], ["y"])
    require_equal(proto, [{"x": floats(*shape)} for shape in ((3, 0, 2), (0, 3, 2))], tmp_path)


def test_products_of_no_terms_are_zero(tmp_path: Path) -> None:
    batched = model(
        [node("MatMul", ["x", "z"], ["y"])],
        [value("x", ["n", 4, "a", "k"]), value("z", ["n", 4, "k", 16])],
        ["y"],
    )
    shapes = [(2, 3, 0), (0, 3, 2), (2, 3, 5)]
    given = [{"x": floats(n, 4, a, k), "z": floats(n, 4, k, 16)} for n, a, k in shapes]
    require_equal(batched, given, tmp_path)
    added = model(
        [node("Gemm", ["x", "z", "c"], ["y"], transB=1)],
        [value("x", ["a", "k"]), value("z", ["b", "k"]), value("c", ["b"])],
        ["y"],
    )
    given = [{"x": floats(3, k), "z": floats(4, k), "c": floats(4)} for k in (0, 6)]
    require_equal(added, given, tmp_path)


@pytest.mark.parametrize("turns", [0, 3])
def test_loops_of_no_turns(turns: int, tmp_path: Path) -> None:
    """Loops whose number of turns is an input; what each gives is stacked."""
    body = helper.make_graph(
        [node("Add", ["v", "x"], ["w"]), node("Identity", ["go"], ["again"])],
        "body",
        [value("i", [], INT), value("go", [], TensorProto.BOOL), value("v", [4])],
        [value("again", [], TensorProto.BOOL), value("w", [4]), value("w", [4])],
    )
    loop = node("Loop", ["m", "", "x"], ["last", "all"], body=body)
    proto = model([loop], [value("x", [4]), value("m", [], INT)], ["last", "all"])
    require_equal(proto, {"x": floats(4), "m": np.array(turns)}, tmp_path)


def test_loops_over_an_empty_size(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Gather", ["x", "i"], ["row"]), node("Add", ["v", "row"], ["w"]),
         node("Identity", ["go"], ["again"])],
        "body",
        [value("i", [], INT), value("go", [], TensorProto.BOOL), value("v", [4])],
        [value("again", [], TensorProto.BOOL), value("w", [4]), value("w", [4])],
    )  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"], end=1),
        node("Squeeze", ["shape"], ["m"]),
        node("Loop", ["m", "", "zero"], ["last", "all"], body=body),
    ]
    zero = {"zero": np.zeros(4, np.float32)}
    proto = model(nodes, [value("x", ["n", 4])], ["last", "all"], zero)
    require_equal(proto, [{"x": floats(n, 4)} for n in (0, 2)], tmp_path)
