"""Models as graphs: shapes that are followed, inputs that are asked for, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from maxtool.errors import InputError, MaxtoolError, ModelMismatch, UsageError
from maxtool.importers.onnx import import_model, open_model
from maxtool.importers.onnx.problems import UnfixedInputs
from tests.importers.backend_suite import by_compiler, by_definitions
from tests.importers.models import model, saved, value

node = helper.make_node
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def refused(proto: onnx.ModelProto, folder: Path, **options: object) -> MaxtoolError:
    with pytest.raises(MaxtoolError) as error:
        import_model(open_model(saved(proto, folder)), **options)
    return error.value


def test_chains_from_shape_to_reshape_are_followed(tmp_path: Path) -> None:
    """[batch, seq, 12] becomes [batch, 4, seq, 3] by arithmetic on the model's own shapes."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Gather", ["shape", "one"], ["seq"]),
        node("Gather", ["shape", "two"], ["width"]),
        node("Div", ["width", "heads"], ["each"]),
        *(node("Unsqueeze", [name, "zeros"], [f"{name}_"]) for name in ("batch", "seq", "each")),
        node("Concat", ["batch_", "seq_", "heads_", "each_"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["apart"]),
        node("Transpose", ["apart"], ["y"], perm=[0, 2, 1, 3]),
    ]
    numbers = {"zero": 0, "one": 1, "two": 2, "heads": 4}
    initializers = {name: np.array(number, np.int64) for name, number in numbers.items()}
    initializers |= {"zeros": np.array([0]), "heads_": np.array([4])}
    proto = model(nodes, [value("x", ["batch", "seq", 12])], ["y"], initializers)
    imported = import_model(open_model(saved(proto, tmp_path)))
    assert [str(dim) for dim in imported.graph.outputs[0].shape] == ["batch", "4", "seq", "3"]
    assert [one.op for one in imported.graph.nodes] == ["reshape", "permute"]
    x = np.random.default_rng(0).normal(size=(2, 5, 12))
    (result,) = by_definitions(imported, {"x": x})
    np.testing.assert_array_equal(result, x.reshape(2, 5, 4, 3).transpose(0, 2, 1, 3))


def test_sizes_may_all_be_numbers_behind_names(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "from", "to"], ["last"]),
        node("Concat", ["free", "last"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["y"]),
    ]
    initializers = {"from": np.array([1]), "to": np.array([3]), "free": np.array([-1])}
    proto = model(nodes, [value("x", ["n", 3, 2])], ["y"], initializers)
    imported = import_model(open_model(saved(proto, tmp_path)))
    assert [str(dim) for dim in imported.graph.outputs[0].shape] == ["n", "3", "2"]


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_weights_of_products_are_those_of_linear_layers(op: str, tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(90, 80)).astype(np.float32)
    proto = model([node(op, ["x", "w"], ["y"])], [value("x", ["n", 90])], ["y"], {"w": weight})
    imported = import_model(open_model(saved(proto, tmp_path)))
    assert [one.op for one in imported.graph.nodes] == ["linear"]
    assert str(imported.graph.owners["w.T"].shape) == "[80, 90]"
    x = np.random.default_rng(1).normal(size=(3, 90))
    (result,) = by_definitions(imported, {"x": x})
    np.testing.assert_allclose(result, x @ weight, rtol=1e-6, atol=1e-6)


def test_tables_of_positions_are_cut_to_a_named_size(tmp_path: Path) -> None:
    """Exported encoders do it so: ``positions[:, :length]`` of 8 positions."""
    nodes = [
        node("Shape", ["ids"], ["shape"]),
        node("Slice", ["shape", "one", "two"], ["length"]),
        node("Slice", ["positions", "zero", "length", "one"], ["own"]),
        node("Gather", ["table", "ids"], ["rows"]),
        node("Add", ["rows", "own"], ["y"]),
    ]
    initializers = {name: np.array([i]) for i, name in enumerate(("zero", "one", "two"))}
    positions, table = np.arange(8.0)[None], np.arange(5.0) * 10
    initializers |= {"positions": positions, "table": table}
    proto = model(nodes, [value("ids", ["n", "length"], TensorProto.INT64)], ["y"], initializers)
    imported = import_model(open_model(saved(proto, tmp_path)))
    assert imported.limits == {"length": 8}
    assert imported.values == {"ids": (-5, 4)}
    ids = np.array([[1, 4, -5], [0, 2, 3]])
    (result,) = by_definitions(imported, {"ids": ids})
    np.testing.assert_array_equal(result, table[ids] + positions[:, :3])


def test_a_size_that_a_call_does_not_bring_has_no_limit(tmp_path: Path) -> None:
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Shape", ["places"], ["shape"]),
        node("Slice", ["shape", "one", "two"], ["count"]),
        node("Slice", ["table", "zero", "count"], ["y"]),
    ]
    initializers = {name: np.array([i]) for i, name in enumerate(("zero", "one", "two"))}
    initializers["table"] = np.arange(8.0)
    error = refused(model(nodes, [value("x", ["n"])], ["y"], initializers), tmp_path)
    assert "is at most 8 is not known in advance" in str(error.problems)


def test_sizes_are_said_anew(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", ["n", None, 3])], ["y"])
    opened = open_model(saved(proto, tmp_path))
    assert str(import_model(opened).graph.inputs[0].shape) == "[n, x_1, 3]"
    imported = import_model(opened, shapes={"x": ("batch", 7, 3)})
    assert str(imported.graph.outputs[0].shape) == "[batch, 7, 3]"
    error = refused(proto, tmp_path, shapes={"x": (1, 7, 4)})
    assert "dimension 2 is 3 in the model, not 4" in str(error)
    with pytest.raises(UsageError, match="there is no such input"):
        import_model(opened, shapes={"z": (1,)})


def test_inputs_whose_elements_decide_shapes_are_asked_for(tmp_path: Path) -> None:
    inputs = [
        value("x", [2, 3]),
        value("pads", [2], TensorProto.INT64),
        value("axes", [1], TensorProto.INT64),
    ]
    proto = model([node("Pad", ["x", "pads", "", "axes"], ["y"])], inputs, ["y"])
    error = refused(proto, tmp_path)
    assert isinstance(error, UnfixedInputs)
    assert error.names == ("pads", "axes")
    assert "Pad (opset 20), node 'y'" in str(error)
    assert "--fix pads=VALUE" in str(error)
    fixed = {"pads": np.array([-1, 0]), "axes": np.array([0])}
    imported = import_model(open_model(saved(proto, tmp_path)), fixed=fixed)
    assert imported.inputs == ("x",)
    np.testing.assert_array_equal(by_definitions(imported, {"x": ARRAY})[0], ARRAY[1:])


def test_fixed_values_are_of_the_type_of_the_input(tmp_path: Path) -> None:
    inputs = [value("x", [2, 3]), value("axes", [1], TensorProto.INT64)]
    proto = model([node("ReduceSum", ["x", "axes"], ["y"])], inputs, ["y"])
    error = refused(proto, tmp_path, fixed={"axes": np.array([0.5])})
    assert "--fix has values that int64 does not" in str(error)


def test_everything_that_is_not_supported_is_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Strange", ["x"], ["a"], name="first", domain="com.example"),
        node("Strange", ["a"], ["b"], domain="com.example"),
        node("ImageDecoder", ["x"], ["c"]),
        node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
        node("Relu", ["b"], ["y"]),
    ]
    domains = {"com.example": 3, "ai.onnx.ml": 3}
    error = refused(model(nodes, [value("x", [3])], ["y"], domains=domains), tmp_path)
    assert error.exit_code == 4
    assert error.problems[:2] == (
        "com.example.Strange (opset 3), 2 nodes, the first 'first': the operator is not supported",
        "ImageDecoder (opset 20), node 'c': the operator is not supported",
    )
    assert "skl2onnx leaves it out with zipmap=False" in error.problems[2]


def test_every_node_that_does_not_fit_is_listed(tmp_path: Path) -> None:
    nodes = [
        node("Concat", ["x", "x"], ["a"], axis=7),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["x", "x"], ["c"]),
    ]
    error = refused(model(nodes, [value("x", [2, 3])], ["b", "c"]), tmp_path)
    assert len(error.problems) == 2
    assert "there is no dimension 7 in 2" in error.problems[0]
    assert "inner dimensions 3 and 2 differ" in error.problems[1]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["a"])], "no node before it gives"),
        ([node("Relu", ["nothing"], ["a"])], "no node before it gives its input 'nothing'"),
        ([node("Relu", ["x"], ["a"]), node("Abs", ["x"], ["a"])], "gives 'a' once more"),
        ([node("Reshape", ["x", "huge"], ["a"])], "different numbers of elements"),
        ([node("ConstantOfShape", ["huge"], ["a"])], "more than any memory has"),
        ([node("Tile", ["x", "huge"], ["a"])], "more than any memory has"),
        ([node("Constant", [], ["a"])], "a constant of nothing"),
        ([node("Softmax", ["x"], ["a"], axis="1")], "'axis' is of the wrong type"),
        ([node("Split", ["x"], ["a"], num_outputs=1 << 40)], "pieces for 1 outputs"),
        ([node("Relu", ["x"], ["huge"])], "gives 'huge' once more"),
        ([node("OneHot", ["huge", "many", "huge"], ["a"])], "Unable to allocate"),
    ],
)
def test_hostile_graphs_end_in_one_message(
    nodes: list[onnx.NodeProto], message: str, tmp_path: Path
) -> None:
    initializers = {"huge": np.array([1 << 31, 1 << 31], np.int64), "many": np.array(1 << 45)}
    proto = model(nodes, [value("x", [2, 3])], ["a"], initializers)
    assert message in str(refused(proto, tmp_path))


def test_nodes_may_stand_in_any_order(tmp_path: Path) -> None:
    """Graphs inside nodes read what stands behind, too; what does not depend keeps its order."""
    branches = {
        name: helper.make_graph([node(op, ["b"], [op])], name, [], [value(op, None)])
        for name, op in (("then_branch", "Neg"), ("else_branch", "Exp"))
    }
    nodes = [
        node("If", ["asked"], ["c"], **branches),
        node("Add", ["c", "a"], ["y"]),
        node("Relu", ["a"], ["b"]),
        node("Mul", ["x", "two"], ["a"]),
    ]
    inputs = [value("x", ["n"]), value("asked", [], TensorProto.BOOL)]
    proto = model(nodes, inputs, ["y"], {"two": np.array(2, np.float32)})
    x = np.array([-1, 0.5], np.float32)
    expected = [x * 2 - np.maximum(x * 2, 0), x * 2 + np.exp(np.maximum(x * 2, 0))]
    imported = import_model(open_model(saved(proto, tmp_path)))
    for asked, wanted in zip([True, False], expected, strict=True):
        (result,) = by_definitions(imported, {"x": x, "asked": np.array(asked)})
        np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_names_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"])]
    twice = [value("x", [2]), value("x", [3])]
    assert "another input has its name" in str(refused(model(nodes, twice, ["a"]), tmp_path))
    proto = model(nodes, twice[:1], ["a", "a"])
    assert "another output has its name" in str(refused(proto, tmp_path))


def test_a_tensor_larger_than_any_memory_is_refused(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["a"])], [value("x", [1 << 62, 4])], ["a"])
    assert "more than any memory has" in str(refused(proto, tmp_path))


def test_functions_that_call_themselves_end(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    nodes = [node("F", ["x"], ["y"], domain="own")]
    function = helper.make_function("own", "F", ["x"], ["y"], nodes, opsets)
    call = [node("F", ["x"], ["y"], domain="own")]
    proto = model(call, [value("x", [3])], ["y"], functions=[function], domains={"own": 1})
    assert "functions inside each other deeper than" in str(refused(proto, tmp_path))


def test_functions_of_the_model_have_attributes(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 20)]
    body = node("LeakyRelu", ["x"], ["y"])
    body.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
    function = helper.make_function("own", "F", ["x"], ["y"], [body], opsets, ["slope"])
    call = [node("F", ["x"], ["y"], domain="own", slope=0.5)]
    proto = model(call, [value("x", [2])], ["y"], functions=[function], domains={"own": 1})
    imported = import_model(open_model(saved(proto, tmp_path)))
    (result,) = by_definitions(imported, {"x": np.array([-2.0, 3.0])})
    assert result.tolist() == [-1.0, 3.0]


def test_payloads_of_initializers_are_not_parsed(tmp_path: Path) -> None:
    weight = np.ones((100, 100), np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 100])], ["y"], {"w": weight})
    opened = open_model(saved(proto, tmp_path))
    assert not opened.graph.initializer
    assert opened.proto.ByteSize() < 1000
    imported = import_model(opened)
    assert [*imported.graph.weight_values] == ["w.T"]


def test_other_formats_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAY)
    with pytest.raises(InputError, match="not an ONNX model"):
        open_model(tmp_path / "x.npy")


def test_branches_are_chosen_when_the_graph_runs(tmp_path: Path) -> None:
    branches = {
        name: helper.make_graph([node(op, ["x"], ["r"])], name, [], [value("r", [2, 3])])
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    inputs = [value("x", [2, 3]), value("c", [], TensorProto.BOOL)]
    proto = model([node("If", ["c"], ["y"], **branches)], inputs, ["y"])
    imported = import_model(open_model(saved(proto, tmp_path)))
    for condition, expected in ((True, ARRAY), (False, -ARRAY)):
        (result,) = by_definitions(imported, {"x": ARRAY, "c": np.array(condition)})
        np.testing.assert_array_equal(result, expected)


def test_initializers_of_inner_graphs_are_read(tmp_path: Path) -> None:
    inner = numpy_helper.from_array(np.array([2.0, 3.0, 4.0], np.float32), "w")
    then = helper.make_graph(
        [node("Mul", ["x", "w"], ["r"])], "then", [], [value("r", [2, 3])], [inner]
    )
    other = helper.make_graph([node("Neg", ["x"], ["r"])], "else", [], [value("r", [2, 3])])
    inputs = [value("x", [2, 3]), value("c", [], TensorProto.BOOL)]
    proto = model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], inputs, ["y"])
    imported = import_model(open_model(saved(proto, tmp_path)))
    (result,) = by_definitions(imported, {"x": ARRAY, "c": np.array(True)})
    np.testing.assert_array_equal(result, ARRAY * [2, 3, 4])


def test_no_opset_is_a_mismatch(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"], opset=99)
    error = refused(proto, tmp_path)
    assert isinstance(error, ModelMismatch)
    assert "opset 99 of ONNX" in str(error)


def test_a_table_is_cut_to_a_named_size_that_is_bounded(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["shape"], start=1),
        node("Slice", ["table", "zero", "shape"], ["rows"]),
        node("Add", ["x", "rows"], ["y"]),
    ]
    numbers = {"zero": np.array([0]), "table": np.arange(9, dtype=np.float32)}
    proto = model(nodes, [value("x", ["batch", "seq"])], ["y"], numbers)
    imported = import_model(open_model(saved(proto, tmp_path)))
    assert imported.limits == {"seq": 9}
    (result,) = by_definitions(imported, {"x": ARRAY})
    np.testing.assert_array_equal(result, ARRAY + np.arange(3))


def test_a_shape_is_expanded_where_the_model_says_minus_one(tmp_path: Path) -> None:
    """The chain that exporters write for ``expand``: -1 keeps a size."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["batch"]),
        node("Concat", ["batch", "rest"], ["wanted"], axis=0),
        node("Equal", ["wanted", "minus"], ["kept"]),
        node("Where", ["kept", "ones", "wanted"], ["sizes"]),
        node("Expand", ["token", "sizes"], ["y"]),
    ]
    numbers = {"first": [0], "rest": [-1, -1], "minus": -1, "ones": [1, 1, 1]}
    initializers = {name: np.array(one, np.int64) for name, one in numbers.items()}
    initializers["token"] = ARRAY[None]
    proto = model(nodes, [value("x", ["batch", 3])], ["y"], initializers)
    imported = import_model(open_model(saved(proto, tmp_path)))
    assert str(imported.graph.outputs[0].shape) == "[batch, 2, 3]"


def test_comparisons_of_known_values_are_folded(tmp_path: Path) -> None:
    nodes = [node("Equal", ["a", "b"], ["e"]), node("Where", ["e", "x", "zero"], ["y"])]
    initializers = {name: np.array([1, 2, 3]) for name in "ab"} | {"zero": np.zeros(3, np.float32)}
    proto = model(nodes, [value("x", [2, 3])], ["y"], initializers)
    imported = import_model(open_model(saved(proto, tmp_path)))
    assert [one.op for one in imported.graph.nodes] == ["where"]


@pytest.mark.parametrize("turns", [0, 5])
def test_loops_whose_turns_are_known_when_the_graph_runs(turns: int, tmp_path: Path) -> None:
    """A value is doubled until it is large, or as often as an input says."""
    carried = [
        value("i", [], TensorProto.INT64),
        value("go", [], TensorProto.BOOL),
        value("v", [3]),
    ]
    nodes = [
        node("Add", ["v", "v"], ["w"]),
        node("ReduceMax", ["w"], ["top"], keepdims=0),
        node("Less", ["top", "limit"], ["again"]),
    ]
    outputs = [value("again", [], TensorProto.BOOL), value("w", [3])]
    body = helper.make_graph(nodes, "body", carried, outputs)
    inputs = [value("x", [3]), value("n", [], TensorProto.INT64)]
    initializers = {"yes": np.array(True), "limit": np.array(40, np.float32)}
    proto = model([node("Loop", ["n", "yes", "x"], ["y"], body=body)], inputs, ["y"], initializers)
    imported = import_model(open_model(saved(proto, tmp_path)))
    start = np.array([1, 2, 3], np.float32)
    (result,) = by_definitions(imported, {"x": start, "n": np.array(turns)})
    np.testing.assert_array_equal(result, start * 2 ** min(turns, 4))
    (compiled,) = by_compiler(imported, {"x": start, "n": np.array(turns)})
    np.testing.assert_array_equal(compiled, result)


def test_sequences_are_tensors_of_numbered_names(tmp_path: Path) -> None:
    declared = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    nodes = [
        node("SequenceInsert", ["s", "x"], ["y"]),
        node("SequenceLength", ["y"], ["n"]),
    ]
    proto = model(nodes, [declared, value("x", [2, 3])], ["y", "n"])
    assert "--shape s_0=SIZES, s_1=SIZES" in str(refused(proto, tmp_path))
    shapes = {"s_0": (2,), "s_1": ("rows", 3)}
    imported = import_model(open_model(saved(proto, tmp_path)), shapes=shapes)
    assert imported.inputs == ("s_0", "s_1", "x")
    assert imported.outputs == ("y_0", "y_1", "y_2", "n")
    given = {"s_0": np.ones(2), "s_1": np.ones((4, 3)), "x": ARRAY}
    results = by_definitions(imported, given)
    assert [one.shape for one in results] == [(2,), (4, 3), (2, 3), ()]
    assert results[-1] == 3
