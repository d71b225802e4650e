"""ONNX initializers against the onnx package."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from maxtool.dtype import DType
from maxtool.errors import InputError, MalformedFile, MissingFile
from maxtool.weights import open_checkpoint
from maxtool.weights.formats import onnx as ours
from maxtool.weights.formats import onnx_external, onnx_values, protobuf
from tests.weights.hostile import refused
from tests.weights.onnx_files import (
    code,
    constant,
    external,
    model,
    numpy_of,
    raw,
    typed,
)

RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


# --- the schema ----------------------------------------------------------------------------------

MESSAGES = {
    "ModelProto": ours.MODEL,
    "OperatorSetIdProto": ours.OPSET,
    "StringStringEntryProto": ours.PROPERTY,
    "GraphProto": ours.GRAPH,
    "FunctionProto": ours.FUNCTION,
    "NodeProto": ours.NODE,
    "AttributeProto": ours.ATTRIBUTE,
    "TensorProto": ours.TENSOR,
}


@pytest.mark.parametrize("message", MESSAGES)
def test_field_numbers_are_those_of_the_package(message: str) -> None:
    fields = getattr(onnx, message).DESCRIPTOR.fields_by_number
    for number, spec in MESSAGES[message].items():
        field = fields[number]
        assert field.name == spec.name
        packed = spec.name in onnx_values.FIELDS
        assert (field.is_repeated and not packed) == (spec.most > 1)
        whole_number = field.type in (field.TYPE_INT32, field.TYPE_INT64, field.TYPE_ENUM)
        assert (protobuf.VARINT in spec.kinds) == (whole_number and not packed)
    assert onnx.FunctionProto.DESCRIPTOR.fields_by_number[ours.FUNCTION_NODE].name == "node"


def test_element_types_are_those_of_the_package() -> None:
    known = dict(TensorProto.DataType.items())
    for dtype in DType:
        assert helper.tensor_dtype_to_np_dtype(code(dtype)) == dtype.to_numpy()
        field = helper.tensor_dtype_to_field(code(dtype))
        assert onnx_values.FIELD_OF[dtype] == field
    for number, name in ours.OTHER_TYPES.items():
        assert known.get(name, number) == number  # an older package has fewer
    covered = {*map(code, DType), *ours.OTHER_TYPES, TensorProto.UNDEFINED, TensorProto.STRING}
    assert set(known.values()) <= covered


# --- agreement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [typed, raw])
def test_every_type(tmp_path: Path, make: Callable[[DType], Any]) -> None:
    result = model(*map(make, DType))
    onnx.save(result, tmp_path / "x.onnx")
    checkpoint = open_checkpoint(tmp_path / "x.onnx")
    assert (checkpoint.format, checkpoint.config) == ("onnx", None)
    assert list(checkpoint.tensors) == [dtype.value for dtype in DType]
    for tensor in result.graph.initializer:
        weight = checkpoint.read(tensor.name)
        assert weight.dtype is DType(tensor.name)
        np.testing.assert_array_equal(weight.data, numpy_of(tensor), err_msg=tensor.name)


INTEGERS = [dtype for dtype in DType if dtype.is_integral()]


@given(dtype=st.sampled_from(INTEGERS), data=st.data())
@RELAXED
def test_integers_in_groups_of_seven_bits(tmp_path: Path, dtype: DType, data: Any) -> None:
    limits = np.iinfo(dtype.to_numpy())
    numbers = st.integers(int(limits.min), int(limits.max))
    values = data.draw(st.lists(numbers, min_size=1, max_size=9))
    tensor = helper.make_tensor("a", code(dtype), [len(values)], values)
    onnx.save(model(tensor), tmp_path / "x.onnx")
    assert open_checkpoint(tmp_path / "x.onnx").read("a").data.tolist() == values


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16, DType.float8_e4m3fn])
def test_narrow_floats_keep_their_bits(tmp_path: Path, dtype: DType) -> None:
    bits = np.arange(1 << (8 * dtype.size_in_bytes)).astype(f"u{dtype.size_in_bytes}")
    tensor = TensorProto(name="a", data_type=code(dtype), dims=[len(bits)])
    tensor.int32_data.extend(bits.tolist())
    onnx.save(model(tensor), tmp_path / "x.onnx")
    assert open_checkpoint(tmp_path / "x.onnx").read("a").data.tobytes() == bits.tobytes()


def test_scalars_empty_tensors_and_the_metadata(tmp_path: Path) -> None:
    scalar = numpy_helper.from_array(np.array(7.0), "scalar")
    empty = numpy_helper.from_array(np.empty((0, 3), np.int64), "empty")
    bare = TensorProto(name="bare", data_type=TensorProto.FLOAT, dims=[3, 0])
    result = model(scalar, empty, bare, opset_imports=[helper.make_opsetid("", 20)])
    helper.set_model_props(result, {"author": "somebody", "domain": "kept apart"})
    result.domain = "a.domain"
    result.functions.append(
        helper.make_function("d", "f", [], [], [], [helper.make_opsetid("", 20)])
    )
    onnx.save(result, tmp_path / "x.onnx")
    checkpoint = open_checkpoint(tmp_path / "x.onnx")
    shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    assert shapes == {"scalar": (), "empty": (0, 3), "bare": (3, 0)}
    assert checkpoint.read("scalar").data.tolist() == 7
    assert checkpoint.read("bare").data.shape == (3, 0)
    assert checkpoint.metadata == {
        "ir_version": result.ir_version,
        "producer_name": "tests",
        "domain": "a.domain",
        "opset.ai.onnx": 20,
        "author": "somebody",
    }


def branch(*tensors: Any, nodes: tuple[Any, ...] = ()) -> Any:
    return helper.make_graph(list(nodes), "branch", [], [], list(tensors))


def nested() -> Any:
    """A model with an If inside a Loop, and an operator of its own with graphs in a list."""
    inner = helper.make_node(
        "If",
        ["c"],
        ["o"],
        then_branch=branch(constant("w", 1)),
        else_branch=branch(constant("w", 2)),
    )
    outer = helper.make_node(
        "Loop", ["n", "c"], ["o"], name="loop", body=branch(constant("w", 3), nodes=(inner,))
    )
    many = helper.make_node("Own", [], ["p"], domain="own")
    attribute = AttributeProto(name="graphs", type=AttributeProto.GRAPHS)
    attribute.graphs.extend([branch(constant("w", 4)), branch(constant("w", 5))])
    many.attribute.append(attribute)
    result = model(constant("w", 0), nodes=(outer, many))
    function = helper.make_function(
        "own", "twice", [], ["o"], [inner], [helper.make_opsetid("", 20)]
    )
    result.functions.append(function)
    return result


def test_graphs_in_nodes(tmp_path: Path) -> None:
    onnx.save(nested(), tmp_path / "x.onnx")
    checkpoint = open_checkpoint(tmp_path / "x.onnx")
    values = {name: checkpoint.read(name).data.tolist()[0] for name in checkpoint.tensors}
    assert values == {
        "loop.body.If_0.then_branch.w": 1,
        "loop.body.If_0.else_branch.w": 2,
        "loop.body.w": 3,
        "Own_1.graphs.0.w": 4,
        "Own_1.graphs.1.w": 5,
        "w": 0,
        "twice.If_0.then_branch.w": 1,
        "twice.If_0.else_branch.w": 2,
    }


def test_text_and_sparse_tensors_are_left_out_with_a_note(tmp_path: Path) -> None:
    result = model(helper.make_tensor("names", TensorProto.STRING, [1], [b"x"]), constant("w", 1))
    values, places = constant("v", 1), numpy_helper.from_array(np.array([0, 2]), "i")
    result.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    onnx.save(result, tmp_path / "x.onnx")
    checkpoint = open_checkpoint(tmp_path / "x.onnx")
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.notes == (
        "tensors of text were left out: names",
        "sparse initializers were left out: 1",
    )


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(model(constant("w", 1)).SerializeToString())
    assert open_checkpoint(tmp_path / "weights").format == "onnx"


def test_raw_payloads_are_views(tmp_path: Path) -> None:
    onnx.save(model(constant("a", 1), typed(DType.float64)), tmp_path / "x.onnx")
    checkpoint = open_checkpoint(tmp_path / "x.onnx")
    assert all(info.unpack is None for info in checkpoint.tensors.values())


# --- data beside the model -----------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_data_beside_the_model(tmp_path: Path, together: bool) -> None:
    result = model(*(raw(dtype) for dtype in DType if dtype is not DType.bool))
    for tensor in result.graph.initializer:
        tensor.raw_data *= 100
        tensor.dims[0] *= 100
    expected = {tensor.name: numpy_of(tensor) for tensor in result.graph.initializer}
    onnx.save(
        result,
        tmp_path / "x.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=together,
        location="x.onnx_data" if together else None,
        size_threshold=0,
    )
    checkpoint = open_checkpoint(tmp_path / "x.onnx")
    assert len(checkpoint.files) == (2 if together else 1 + len(expected))
    for name, array in expected.items():
        np.testing.assert_array_equal(checkpoint.read(name).data, array)


def beside(folder: Path, name: str = "data") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack("<4f", 0, 1, 2, 3))
    return file


GOOD_PLACES: list[tuple[dict[str, object], list[float]]] = [
    ({"location": "data", "offset": 4, "length": 8}, [1, 2]),
    ({"location": "data", "offset": 8}, [2, 3]),
    ({"location": "./data", "length": 8, "checksum": "abc"}, [0, 1]),
    ({"location": "folder/data", "offset": 8, "length": 8}, [2, 3]),
]


@pytest.mark.parametrize(("entries", "expected"), GOOD_PLACES)
def test_places(tmp_path: Path, entries: dict[str, object], expected: list[float]) -> None:
    beside(tmp_path)
    beside(tmp_path, "folder/data")
    (tmp_path / "x.onnx").write_bytes(external(entries))
    assert open_checkpoint(tmp_path / "x.onnx").read("w").data.tolist() == expected


M, U = MalformedFile, InputError
BAD_PLACES: dict[str, tuple[dict[str, object], type[InputError], str]] = {
    "no location": ({}, M, "contradict"),
    "empty location": ({"location": ""}, U, "'' is not a plain path"),
    "the folder": ({"location": "."}, U, "'.' is not a plain path"),
    "above": ({"location": "../secret"}, U, "is not a plain path in the model's folder"),
    "above, later": ({"location": "folder/../../secret"}, U, "is not a plain path"),
    "absolute": ({"location": "/etc/passwd"}, U, "is not a plain path"),
    "drive": ({"location": "C:\\secret"}, U, "is not a plain path"),
    "backslashes": ({"location": "..\\secret"}, U, "is not a plain path"),
    "NUL": ({"location": "da\0ta"}, U, "is not a plain path"),
    "a link": ({"location": "link"}, U, "a link that may lead outside the folder"),
    "a link to a folder": ({"location": "links/secret"}, U, "a link that may lead outside"),
    "a hard link": ({"location": "hard"}, U, "a link that may lead outside the folder"),
    "a link in a circle": ({"location": "circle"}, MissingFile, "cannot be read"),
    "a folder": ({"location": "folder"}, U, "may lead outside|not a regular file"),
    "a pipe": ({"location": "pipe"}, MissingFile, "not a regular file"),
    "not there": ({"location": "none"}, MissingFile, "no such file"),
    "name too long": ({"location": "x" * 4000}, MissingFile, "cannot be read"),
    "offset beyond": ({"location": "data", "offset": 12, "length": 8}, M, "which has 16"),
    "offset far beyond": ({"location": "data", "offset": 1 << 62}, M, "names 0 bytes at 46116"),
    "offset of 40 digits": ({"location": "data", "offset": "9" * 40}, M, "not a whole number"),
    "offset negative": ({"location": "data", "offset": -8}, M, "'-8', not a whole number"),
    "offset of another script": ({"location": "data", "offset": "\u0661"}, M, "not a whole number"),
    "length of text": ({"location": "data", "length": "8 "}, M, "'8 ', not a whole number"),
    "length differs": ({"location": "data", "length": 4}, M, "needs 8 bytes; .* names 4 bytes"),
    "length of all": ({"location": "data"}, M, "needs 8 bytes; the model names 16 bytes"),
}


@pytest.mark.parametrize("name", BAD_PLACES)
def test_bad_places(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    entries, kind, message = BAD_PLACES[name]
    secret = beside(tmp_path, "secret")
    beside(folder)
    beside(folder, "folder/inside")
    (folder / "link").symlink_to(secret)
    (folder / "links").symlink_to(tmp_path)
    (folder / "circle").symlink_to(folder / "circle")
    os.link(secret, folder / "hard")
    os.mkfifo(folder / "pipe")
    refused(folder / "x.onnx", (external(entries), kind, message))


def test_a_key_twice(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=1)
    for offset in ("0", "8"):
        tensor.external_data.add(key="offset", value=offset)
    case = (model(tensor).SerializeToString(), M, "says 'offset' twice")
    refused(tmp_path / "x.onnx", case)


def test_links_as_in_the_hub_cache(tmp_path: Path) -> None:
    """The cache has model and data in one folder, and links to both in another."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    beside(blobs, "abc")
    (blobs / "def").write_bytes(external({"location": "data", "offset": 8}))
    (snapshot / "data").symlink_to("../../blobs/abc")
    (snapshot / "model.onnx").symlink_to("../../blobs/def")
    assert open_checkpoint(snapshot / "model.onnx").read("w").data.tolist() == [2, 3]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data").symlink_to(blobs / "abc")
    (tmp_path / "other" / "model.onnx").write_bytes((blobs / "def").read_bytes())
    with pytest.raises(InputError, match="a link that may lead outside"):
        open_checkpoint(tmp_path / "other" / "model.onnx")


def test_too_many_files(tmp_path: Path) -> None:
    tensors = []
    for index in range(onnx_external.MAX_FILES + 1):
        beside(tmp_path, f"data{index}")
        tensor = TensorProto(name=f"w{index}", data_type=1, dims=[4], data_location=1)
        tensor.external_data.add(key="location", value=f"data{index}")
        tensors.append(tensor)
    case = (model(*tensors).SerializeToString(), M, "in more than 1024 files")
    refused(tmp_path / "x.onnx", case)


def test_bfloat16_of_ml_dtypes() -> None:
    assert helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16) == ml_dtypes.bfloat16


@RELAXED
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40),
    st.lists(st.floats(width=32), max_size=40),
    st.integers(0, 3000),
)
def test_lists_of_numbers_before_a_graph(
    tmp_path: Path, ints: list[int], floats: list[float], many: int
) -> None:
    """A branch is found behind lists of attributes, which are passed over by the run."""
    branch = helper.make_graph([], "b", [], [], [numpy_helper.from_array(np.ones(3, "f4"), "w")])
    node = helper.make_node("If", ["c"], ["y"], name="if")
    attribute = helper.make_attribute("then_branch", branch)
    attribute.ints.extend(ints * (1 + many // 40))
    attribute.floats.extend(floats * (1 + many // 40))
    node.attribute.append(attribute)
    graph = helper.make_graph([node], "g", [], [])
    path = tmp_path / "x.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert [*open_checkpoint(path).tensors] == ["if.then_branch.w"]


def test_millions_of_numbers_are_no_work(tmp_path: Path) -> None:
    """A forest of trees has as many; they took more fields than a file may have."""
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], nodes_values=[0.5] * 700_000)
    node.attribute.append(helper.make_attribute("nodes_nodeids", [*range(700_000)]))
    weight = numpy_helper.from_array(np.ones(3, "f4"), "w")
    path = tmp_path / "x.onnx"
    graph = helper.make_graph([node], "g", [], [], [weight])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert [*open_checkpoint(path).tensors] == ["w"]


def test_a_number_of_a_list_that_is_cut_short(tmp_path: Path) -> None:
    body = b"\x40\x01" * 50 + b"\x40\x81"
    node = b"\x2a" + bytes([len(body)]) + body
    graph = b"\x0a" + bytes([len(node)]) + node
    path = tmp_path / "x.onnx"
    path.write_bytes(b"\x08\x08\x3a" + bytes([len(graph)]) + graph)
    with pytest.raises(MalformedFile, match="cut short"):
        open_checkpoint(path)
