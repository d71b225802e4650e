"""Loops, scans and branches that data decide, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from maxtool.errors import ModelMismatch
from maxtool.importers.onnx import import_model, open_model
from tests.importers.backend_suite import by_definitions
from tests.importers.beside_onnxruntime import require_equal
from tests.importers.models import model, saved, value

pytestmark = pytest.mark.peers
node = helper.make_node
RANDOM = np.random.default_rng(6)
INT, BOOL = TensorProto.INT64, TensorProto.BOOL


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def body(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs)


TURN = [value("i", [], INT), value("go", [], BOOL)]


@pytest.mark.parametrize("stops", [False, True])
def test_loops_give_a_value_of_each_turn(stops: bool, tmp_path: Path) -> None:
    """Turns are counted by an input, or end when a sum is large."""
    nodes = [
        node("Add", ["v", "x"], ["w"]),
        node("Cast", ["i"], ["turn"], to=TensorProto.FLOAT),
        node("Mul", ["w", "turn"], ["each"]),
        node("ReduceMax", ["w"], ["top"], keepdims=0),
        node("Less", ["top", "limit"], ["small"]),
        node("Identity", ["small" if stops else "go"], ["again"]),
    ]
    outputs = [value("again", [], BOOL), value("w", ["n"]), value("each", ["n"])]
    graph = body(nodes, [*TURN, value("v", ["n"])], outputs)
    loop = node("Loop", ["m", "yes", "x"], ["last", "all"], body=graph)
    numbers = {"yes": np.array(True), "limit": np.array(3.5, np.float32)}
    proto = model([loop], [value("x", ["n"]), value("m", [], INT)], ["last", "all"], numbers)
    given = [{"x": np.arange(3, dtype=np.float32) / 2, "m": np.array(m)} for m in (6, 1)]
    require_equal(proto, given, tmp_path)


def test_loops_over_a_named_size(tmp_path: Path) -> None:
    nodes = [node("Gather", ["x", "i"], ["row"]), node("Add", ["v", "row"], ["w"])]
    nodes.append(node("Identity", ["go"], ["again"]))
    outputs = [value("again", [], BOOL), value("w", [4]), value("w", [4])]
    graph = body(nodes, [*TURN, value("v", [4])], outputs)
    proto = model(
        [
            node("Shape", ["x"], ["shape"], end=1),
            node("Squeeze", ["shape"], ["m"]),
            node("Loop", ["m", "", "zero"], ["last", "all"], body=graph),
        ],
        [value("x", ["n", 4])],
        ["last", "all"],
        {"zero": np.zeros(4, np.float32)},
    )
    require_equal(proto, [{"x": floats(n, 4)} for n in (1, 9)], tmp_path)


APPEND = [
    node("Gather", ["x", "i"], ["taken"]),
    node("Unsqueeze", ["taken", "zero"], ["row"]),
    node("Concat", ["rows", "row"], ["more"], axis=0),
    node("Identity", ["go"], ["again"]),
]
NUMBERS = {"none": np.zeros((0, 3), np.float32), "zero": np.array([0]), "one": np.array([1])}


def appending(nodes: Sequence[onnx.NodeProto], *given: str) -> onnx.NodeProto:
    """A loop that carries rows, of which each turn makes other ones."""
    carried = [value("rows", None)]
    outputs = [value("again", [], BOOL), value("more", None), *(value(one, None) for one in given)]
    return node(
        "Loop", ["m", "", "none"], ["all", *(f"{one}s" for one in given)],
        body=body(nodes, [*TURN, *carried], outputs),
    )  # fmt: skip


def of_rows(*nodes: onnx.NodeProto, outputs: Sequence[str]) -> onnx.ModelProto:
    inputs = [value("x", ["n", 3]), value("m", [], INT)]
    return model(nodes, inputs, outputs, NUMBERS)


def calls(*turns: int) -> list[dict[str, np.ndarray]]:
    x = floats(5, 3)
    return [{"x": x, "m": np.array(one)} for one in turns]


def test_a_loop_carries_a_tensor_that_grows(tmp_path: Path) -> None:
    """The tensor is read in the loop, too, and what follows from it is as long."""
    nodes = [*APPEND, node("ReduceSum", ["more"], ["total"], keepdims=0)]
    after = [
        node("Shape", ["all"], ["shape"]),
        node("Cast", ["shape"], ["sizes"], to=TensorProto.FLOAT),
        node("Neg", ["all"], ["y"]),
    ]
    proto = of_rows(appending(nodes, "total"), *after, outputs=["y", "sizes", "totals"])
    require_equal(proto, calls(4, 1, 5), tmp_path)


def test_a_loop_carries_a_tensor_that_shrinks(tmp_path: Path) -> None:
    nodes = [
        node("Slice", ["rows", "one", "end"], ["more"]),
        node("Identity", ["go"], ["again"]),
    ]
    loop = appending(nodes)
    loop.input[2] = "x"
    proto = of_rows(loop, outputs=["all"])
    end = onnx.numpy_helper.from_array(np.array([1 << 40]), "end")
    proto.graph.initializer.append(end)
    require_equal(proto, calls(0, 3), tmp_path)


def test_a_loop_appends_as_much_as_data_say(tmp_path: Path) -> None:
    nodes = [
        node("Gather", ["x", "i"], ["taken"]),
        node("Greater", ["taken", "least"], ["chosen"]),
        node("Compress", ["taken", "chosen"], ["some"], axis=0),
        node("Concat", ["rows", "some"], ["more"], axis=0),
        node("Shape", ["more"], ["length"]),
        node("Squeeze", ["length"], ["count"]),
        node("Less", ["count", "six"], ["again"]),
    ]
    loop = appending(nodes)
    proto = of_rows(loop, outputs=["all"])
    more = {"none": np.zeros(0, np.float32), "six": np.array(6)}
    more["least"] = np.array(0, np.float32)
    kept = [one for one in proto.graph.initializer if one.name not in more]
    del proto.graph.initializer[:]
    made = (onnx.numpy_helper.from_array(one, name) for name, one in more.items())
    proto.graph.initializer.extend([*kept, *made])
    require_equal(proto, calls(1, 5), tmp_path)


def test_loops_that_grow_inside_each_other(tmp_path: Path) -> None:
    inner = body(
        [*APPEND[:2], node("Concat", ["own", "row"], ["longer"], axis=0),
         node("Identity", ["on"], ["further"])],
        [value("i", [], INT), value("on", [], BOOL), value("own", None)],
        [value("further", [], BOOL), value("longer", None)],
    )  # fmt: skip
    nodes = [node("Loop", ["i", "", "rows"], ["more"], body=inner), APPEND[-1]]
    require_equal(of_rows(appending(nodes), outputs=["all"]), calls(1, 4), tmp_path)


@pytest.mark.parametrize(("axis", "back", "out"), [(0, 0, 0), (1, 1, 1), (0, 1, -1)])
def test_scans_of_a_named_size(axis: int, back: int, out: int, tmp_path: Path) -> None:
    nodes = [node("Mul", ["s", "half"], ["t"]), node("Add", ["t", "e"], ["u"])]
    nodes.append(node("Sum", ["u", "e"], ["o"]))
    graph = body(nodes, [value("s", [3]), value("e", [3])], [value("u", [3]), value("o", [3])])
    options = {"scan_input_axes": [axis], "scan_input_directions": [back]}
    options |= {"scan_output_axes": [out], "scan_output_directions": [back]}
    scan = node("Scan", ["s0", "x"], ["s", "y"], body=graph, num_scan_inputs=1, **options)
    shape = ["n", 3] if axis == 0 else [3, "n"]
    numbers = {"s0": np.ones(3, np.float32), "half": np.array(0.5, np.float32)}
    proto = model([scan], [value("x", shape)], ["s", "y"], numbers)
    given = [{"x": floats(*(n if one == "n" else one for one in shape))} for n in (1, 6)]
    require_equal(proto, given, tmp_path)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_over_a_named_size(op: str, tmp_path: Path) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    shapes = {"w": (2, gates * 8, 5), "r": (2, gates * 8, 8), "b": (2, gates * 16)}
    weights = {name: floats(*shape) * 0.4 for name, shape in shapes.items()}
    layer = node(
        op, ["x", "w", "r", "b", "lengths"], ["y", "h"], hidden_size=8, direction="bidirectional"
    )
    inputs = [value("x", ["t", "n", 5]), value("lengths", ["n"], TensorProto.INT32)]
    given = [
        {"x": floats(t, 2, 5), "lengths": np.array([t, max(t - 3, 1)], np.int32)} for t in (1, 20)
    ]
    require_equal(model([layer], inputs, ["y", "h"], weights), given, tmp_path)


def branches(*each: tuple[Sequence[onnx.NodeProto], Any]) -> dict[str, onnx.GraphProto]:
    return {
        name: helper.make_graph(nodes, name, [], [result])
        for name, (nodes, result) in zip(("then_branch", "else_branch"), each, strict=True)
    }


def test_branches_with_weights_and_branches_inside(tmp_path: Path) -> None:
    matrix = onnx.numpy_helper.from_array(floats(80, 80))
    inner = branches(
        ([node("Constant", [], ["m"], value=matrix), node("MatMul", ["x", "m"], ["a"])],
         value("a", None)),
        ([node("MatMul", ["x", "w"], ["b"])], value("b", None)),
    )  # fmt: skip
    outer = branches(
        ([node("If", ["d"], ["c"], **inner)], value("c", None)),
        ([node("Neg", ["x"], ["e"])], value("e", None)),
    )
    inputs = [value("x", ["n", 80]), value("c0", [], BOOL), value("d", [1], BOOL)]
    proto = model([node("If", ["c0"], ["y"], **outer)], inputs, ["y"], {"w": floats(80, 80)})
    given = [
        {"x": floats(2, 80), "c0": np.array(c), "d": np.array([d])}
        for c, d in ((True, True), (True, False), (False, True))
    ]
    require_equal(proto, given, tmp_path)


def test_a_dimension_is_left_out_if_it_is_one(tmp_path: Path) -> None:
    """Exporters of scripts write so; a call whose size is another is refused."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["size"], axis=0),
        node("Equal", ["size", "one"], ["is_one"]),
        node("If", ["is_one"], ["y"], **branches(
            ([node("Squeeze", ["x", "axes"], ["a"])], value("a", None)),
            ([node("Identity", ["x"], ["b"])], value("b", None)),
        )),
    ]  # fmt: skip
    numbers = {"one": np.array(1), "axes": np.array([1])}
    proto = model(nodes, [value("x", ["n", "k", 3])], ["y"], numbers)
    require_equal(proto, {"x": floats(4, 1, 3)}, tmp_path)
    imported = import_model(open_model(saved(proto, tmp_path)))
    with pytest.raises(ValueError, match="rebind"):
        by_definitions(imported, {"x": floats(4, 2, 3)})


def test_branches_give_sequences_of_one_length(tmp_path: Path) -> None:
    cases = {
        name: helper.make_graph(
            [node("SequenceConstruct", names, [name])], name, [],
            [helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)],
        )
        for name, names in (("then_branch", ["x", "z"]), ("else_branch", ["z", "x"]))
    }  # fmt: skip
    nodes = [
        node("If", ["c"], ["s"], **cases),
        node("SequenceAt", ["s", "zero"], ["y"]),
    ]
    inputs = [value("x", [3]), value("z", [3]), value("c", [], BOOL)]
    proto = model(nodes, inputs, ["y"], {"zero": np.array(0)})
    given = [{"x": floats(3), "z": floats(3), "c": np.array(c)} for c in (True, False)]
    require_equal(proto, given, tmp_path)


def test_ranges_that_data_end(tmp_path: Path) -> None:
    inputs = [value(name, [], INT) for name in ("from", "to", "by")]
    proto = model([node("Range", ["from", "to", "by"], ["y"])], inputs, ["y"])
    proto.graph.output[0].type.tensor_type.elem_type = INT
    given = [
        dict(zip(("from", "to", "by"), map(np.array, bounds), strict=True))
        for bounds in ((2, 9, 3), (5, -4, -2), (3, 3, 1), (4, 0, 1))
    ]
    require_equal(proto, given, tmp_path)


def test_branches_of_different_ranks_are_refused(tmp_path: Path) -> None:
    cases = branches(
        ([node("Identity", ["x"], ["a"])], value("a", None)),
        ([node("Unsqueeze", ["x", "zero"], ["b"])], value("b", None)),
    )
    inputs = [value("x", [3]), value("c", [], BOOL)]
    proto = model([node("If", ["c"], ["y"], **cases)], inputs, ["y"], {"zero": np.array([0])})
    with pytest.raises(ModelMismatch, match=r"its branches give float32\[3\] and float32\[1, 3\]"):
        import_model(open_model(saved(proto, tmp_path)))


@pytest.mark.parametrize("size", [4, "n"])
def test_branches_give_tensors_of_other_sizes(size: int | str, tmp_path: Path) -> None:
    nodes = [
        node("If", ["c"], ["h"], **branches(
            ([node("Slice", ["x", "one", "end"], ["a"])], value("a", None)),
            ([node("Concat", ["x", "x"], ["b"], axis=0)], value("b", None)),
        )),
        node("MatMul", ["h", "w"], ["y"]),
        node("Shape", ["h"], ["shape"]),
        node("Cast", ["shape"], ["s"], to=TensorProto.FLOAT),
    ]  # fmt: skip
    numbers = {"one": np.array([1]), "end": np.array([1 << 40]), "w": floats(3, 2)}
    inputs = [value("x", [size, 3]), value("c", [], BOOL)]
    given = [{"x": floats(4, 3), "c": np.array(c)} for c in (True, False)]
    require_equal(model(nodes, inputs, ["y", "s"], numbers), given, tmp_path)


def test_branches_choose_places_inside(tmp_path: Path) -> None:
    """A size that only a branch knows was asked of what is around it."""
    nodes = [
        node("If", ["c"], ["places"], **branches(
            ([node("NonZero", ["x"], ["a"])], value("a", None, INT)),
            ([node("Greater", ["x", "half"], ["g"]), node("NonZero", ["g"], ["b"])],
             value("b", None, INT)),
        )),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["x", "rows"], ["y"]),
    ]  # fmt: skip
    inputs = [value("x", ["n", 3]), value("c", [], BOOL)]
    given = [{"x": floats(4, 3), "c": np.array(c)} for c in (True, False)]
    proto = model(nodes, inputs, ["y"], {"half": np.array(0.5, np.float32)})
    require_equal(proto, given, tmp_path)
