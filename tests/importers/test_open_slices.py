"""Slices whose ends the data say, and loops that set variables by them, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from maxtool.errors import ModelMismatch
from maxtool.importers.onnx import import_model, open_model
from tests.importers.beside_onnxruntime import require_equal
from tests.importers.models import model, saved, value
from tests.importers.test_control_flow import TURN, body, floats

pytestmark = pytest.mark.peers
node = helper.make_node
INT = TensorProto.INT64
LEAST = -(1 << 63)
ENDS = ((1, 4), (0, 7), (-3, -1), (5, 2), (9, 12), (-20, 30), (3, -9), (-100, LEAST), (6, LEAST))


@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_ends_that_data_say(step: int, tmp_path: Path) -> None:
    inputs = [value("x", [2, 7, 3]), value("from", [1], INT), value("to", [1], INT)]
    numbers = {"axis": np.array([1]), "by": np.array([step])}
    nodes = [node("Slice", ["x", "from", "to", "axis", "by"], ["a"]), node("Neg", ["a"], ["y"])]
    given = [
        {"x": floats(2, 7, 3), "from": np.array([first]), "to": np.array([last])}
        for first, last in ENDS
    ]
    require_equal(model(nodes, inputs, ["y"], numbers), given, tmp_path)


def test_backwards_from_beyond(tmp_path: Path) -> None:
    inputs = [value("x", ["n"]), value("from", [1], INT), value("to", [1], INT)]
    numbers = {"axis": np.array([0]), "by": np.array([-1])}
    nodes = [node("Slice", ["x", "from", "to", "axis", "by"], ["y"])]
    given = [{"x": floats(n), "from": np.array([3]), "to": np.array([LEAST])} for n in (1, 2)]
    require_equal(model(nodes, inputs, ["y"], numbers), given, tmp_path)


def test_a_list_of_ends_whose_length_has_a_name(tmp_path: Path) -> None:
    inputs = [value("x", [5]), value("from", ["k"], INT), value("to", ["k"], INT)]
    nodes = [node("Slice", ["x", "from", "to", "axis"], ["y"])]
    given = [{"x": floats(5), "from": np.array([1]), "to": np.array([4])}]
    require_equal(model(nodes, inputs, ["y"], {"axis": np.array([0])}), given, tmp_path)


@pytest.mark.parametrize("shape", [[], [1, 1]])
def test_ends_that_are_no_list(shape: list[int], tmp_path: Path) -> None:
    inputs = [value("x", [5]), value("from", shape, INT), value("to", shape, INT)]
    nodes = [node("Slice", ["x", "from", "to", "axis"], ["y"])]
    proto = model(nodes, inputs, ["y"], {"axis": np.array([0])})
    with pytest.raises(ModelMismatch, match="the ends of its ranges are lists"):
        import_model(open_model(saved(proto, tmp_path)))


@pytest.mark.parametrize("first", [np.zeros((1, 2), np.int64), np.array(0, np.int64)])
def test_a_variable_of_a_size_that_a_turn_knows(first: np.ndarray, tmp_path: Path) -> None:
    """Carry a first value of the same rank; one of another is a stand-in."""
    nodes = [node("NonZero", ["x"], ["found"]), node("Identity", ["go"], ["goes"])]
    ends = [value("goes", [], TensorProto.BOOL), value("found", None, INT)]
    graph = body(nodes, [*TURN, value("v", None, INT)], ends)
    loop = node("Loop", ["m", "", "first"], ["last"], body=graph)
    numbers = {"m": np.array(5000), "first": first}
    proto = model([loop], [value("x", ["n"])], ["last"], numbers)
    proto.graph.output[0].type.tensor_type.elem_type = INT
    require_equal(proto, [{"x": floats(4)}, {"x": np.zeros(3, np.float32)}], tmp_path)


def test_several_axes(tmp_path: Path) -> None:
    inputs = [value("x", [5, "n"]), value("from", [2], INT), value("to", [2], INT)]
    nodes = [node("Slice", ["x", "from", "to"], ["y"])]
    given = [
        {"x": floats(5, 6), "from": np.array([1, -4]), "to": np.array([4, 5])},
        {"x": floats(5, 2), "from": np.array([0, 0]), "to": np.array([9, 1])},
    ]
    require_equal(model(nodes, inputs, ["y"]), given, tmp_path)


def table(first: np.ndarray, *, reads: bool) -> onnx.ModelProto:
    """A loop that sets a row of a table in each turn, as PaddlePaddle writes it.

    The table is set anew from what is carried beside it; its own first value is a stand-in.
    """
    nodes = [
        node("Reshape", ["i", "last"], ["start"]),
        node("Add", ["start", "last_one"], ["end"]),
        node("Slice", ["t", "start", "end", "axis"], ["row"]),
        node("Shape", ["row"], ["sizes"]),
        node("Gather", ["x", "i"], ["given"]),
        node("Unsqueeze", ["given", "axis"], ["updates"]),
        node("Expand", ["updates", "sizes"], ["each"]),
        node("Squeeze", ["start"], ["from"]),
        node("Squeeze", ["end"], ["to"]),
        node("Range", ["from", "to", "one"], ["places"]),
        node("Unsqueeze", ["places", "last_one"], ["column"]),
        node("Slice", ["sizes", "last_one", "far"], ["wide"]),
        node("Concat", ["last_one", "wide"], ["repeats"], axis=0),
        node("Tile", ["column", "repeats"], ["tiled"]),
        node("ScatterElements", ["t", "tiled", "each"], ["set"], axis=0),
        node("Add", ["set", "unset"], ["again"]) if reads else node("Identity", ["set"], ["again"]),
        node("Not", ["go"], ["still"]),
        node("Or", ["still", "go"], ["goes"]),
        node("Identity", ["set"], ["result"]),
        node("ReduceSum", ["set"], ["scratch"], keepdims=0),
    ]
    carried = [value("t", [4, 3]), value("unset", None), value("unused", None)]
    ends = [value("goes", [], TensorProto.BOOL)]
    ends += [value(name, None) for name in ("again", "result", "scratch")]
    graph = body(nodes, [*TURN, *carried], ends)
    loop = node("Loop", ["m", "yes", "z", "stand_in", "other"], ["t9", "r9", "s9"], body=graph)
    numbers = {
        "yes": np.array(True), "m": np.array(3), "stand_in": first, "other": floats(2, 2),
        "last": np.array([-1]), "last_one": np.array([1]), "axis": np.array([0]),
        "one": np.array(1), "far": np.array([1 << 30]), "z": np.zeros((4, 3), np.float32),
    }  # fmt: skip
    nodes = [loop, node("Add", ["t9", "r9"], ["y"])]
    return model(nodes, [value("x", [4, 3])], ["y"], numbers)


def test_a_variable_that_a_loop_sets_has_a_stand_in_before(tmp_path: Path) -> None:
    proto = table(np.array(0.0, np.float32), reads=False)
    proto.graph.node[0].input[0] = "turns"
    proto.graph.input.append(value("turns", [], INT))
    with pytest.raises(ModelMismatch, match="a value that it carries on changes"):
        import_model(open_model(saved(proto, tmp_path)))


def test_a_stand_in_that_is_read_is_refused(tmp_path: Path) -> None:
    proto = table(np.array(0.0, np.float32), reads=True)
    with pytest.raises(ModelMismatch, match=r"changes from float32\[\]"):
        proto.graph.node[0].input[1] = "going"
        proto.graph.input.append(value("going", [], TensorProto.BOOL))
        import_model(open_model(saved(proto, tmp_path)))


@pytest.mark.parametrize("turns", [3, 1])
def test_rows_of_a_table_are_set(turns: int, tmp_path: Path) -> None:
    """The body stops by a flag of its own, so that turns are not taken one by one."""
    proto = table(np.array(0.0, np.float32), reads=False)
    graph = proto.graph.node[0].attribute[0].g
    graph.node.append(node("ReduceMax", ["x"], ["top"], keepdims=0))
    graph.node.append(node("Less", ["top", "limit"], ["goes_on"]))
    graph.output[0].name = "goes_on"
    limit = np.array(1e9 if turns > 1 else -1e9, np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(limit, "limit"))
    require_equal(proto, [{"x": floats(4, 3)}], tmp_path)


def test_conditions_have_a_dimension_or_none(tmp_path: Path) -> None:
    """PaddlePaddle's branches give a truth value in either form."""
    one, other = (value(name, [], TensorProto.BOOL) for name in "ab")
    branches = {
        "then_branch": body([node("ReduceMax", ["x"], ["m"], keepdims=0),
                             node("Greater", ["m", "limit"], ["a"])], [], [one]),
        "else_branch": body([node("Slice", ["x", "zero", "end"], ["s"]),
                             node("Less", ["s", "limit"], ["b"])], [], [other]),
    }  # fmt: skip
    nodes = [
        node("If", ["c"], ["d"], **branches),
        node("Where", ["d", "x", "limit"], ["y"]),
    ]
    numbers = {"limit": np.array(0.5, np.float32), "zero": np.array([0]), "end": np.array([1])}
    inputs = [value("x", [3]), value("c", [], TensorProto.BOOL)]
    given = [{"x": floats(3), "c": np.array(c)} for c in (True, False)]
    require_equal(model(nodes, inputs, ["y"], numbers), given, tmp_path)
