"""Quantized graphs: computed with whole numbers, and beside onnxruntime within a step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from maxtool.graph import Node
from maxtool.importers.onnx import ImportedGraph, import_model, open_model
from tests.importers.backend_suite import by_definitions
from tests.importers.beside_onnxruntime import in_compiled, in_onnxruntime
from tests.importers.models import model, saved, value
from tests.importers.quantized_models import images, quantized

node = helper.make_node
RNG = np.random.default_rng(5)


def imported(proto: onnx.ModelProto, folder: Path, *, on_bytes: bool = True) -> ImportedGraph:
    path = saved(proto, folder, "imported.onnx")
    return import_model(open_model(path), on_bytes=on_bytes)


def constants_of(**values: object) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in values.items()}


def operations(graph: ImportedGraph) -> Counter[str]:
    return Counter(one.op for one in graph.graph.nodes if isinstance(one, Node))


def require_steps(proto: onnx.ModelProto, graph: ImportedGraph, inputs: Any, step: float) -> None:
    """Compare with onnxruntime: no output is off by more than a step, and few are at all."""
    (wanted,) = in_onnxruntime(proto, inputs).values()
    for run in (lambda given: by_definitions(graph, given), in_compiled(graph)):
        (got,) = run(inputs)
        off = np.abs(got.astype(np.float64) - wanted)
        assert off.max() <= step * 1.001
        assert (off > step / 2).mean() <= 0.01


@pytest.mark.sampled
@pytest.mark.parametrize("operators", [False, True], ids=["QDQ", "operators"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_networks(tmp_path: Path, signed: bool, per_channel: bool, operators: bool) -> None:
    pytest.importorskip("onnxruntime")
    proto = quantized(tmp_path, signed=signed, per_channel=per_channel, operators=operators)
    graph = imported(proto, tmp_path)
    found = operations(graph)
    assert found["integer_convolution"] == 5
    assert found["conv2d"] == 1, "groups of channels have no kernel for bytes"
    assert not {*found} & {"linear", "matmul"}
    require_steps(proto, graph, {"x": images(9)}, 0.1)


def between(x: str, name: str, zero: str, to: str = "scale") -> list[onnx.NodeProto]:
    return [
        node("QuantizeLinear", [x, to, zero], [f"{name}_q"]),
        node("DequantizeLinear", [f"{name}_q", to, zero], [name]),
    ]


def test_weights_with_zero_points_and_biases_of_floats(tmp_path: Path) -> None:
    """Weights of uint8 around 128 fit int8; a bias of floats is added to the scaled sums."""
    constants = {
        "scale": np.float32(0.03),
        "zero": np.uint8(120),
        "w": RNG.integers(0, 256, (80, 8, 3, 3), np.uint8),
        "w_scale": RNG.uniform(0.001, 0.01, 80).astype(np.float32),
        "w_zero": np.full(80, 128, np.uint8),
        "bias": RNG.normal(size=80).astype(np.float32),
        "to": np.float32(0.05),
    }
    nodes = [
        *between("x", "xd", "zero"),
        node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"], axis=0),
        node("Conv", ["xd", "wd", "bias"], ["c"], pads=[1, 0, 2, 1], strides=[1, 2]),
        *between("c", "y", "zero", "to"),
    ]
    inputs = [value("x", [2, 8, 9, 11])]
    proto = model(nodes, inputs, ["y"], {k: np.asarray(v) for k, v in constants.items()})
    graph = imported(proto, tmp_path)
    assert operations(graph)["integer_convolution"] == 1
    (name,) = graph.graph.weight_values
    assert name.startswith("w.signed")
    x = RNG.normal(size=(2, 8, 9, 11)).astype(np.float32)
    require_steps(proto, graph, {"x": x}, 0.05)


def test_weights_that_do_not_fit_are_of_floats(tmp_path: Path) -> None:
    constants = {
        "scale": np.float32(0.03),
        "zero": np.uint8(120),
        "w": RNG.integers(0, 256, (4, 8, 3, 3), np.uint8),
        "w_zero": np.uint8(3),
    }
    nodes = [
        *between("x", "xd", "zero"),
        node("DequantizeLinear", ["w", "scale", "w_zero"], ["wd"]),
        node("Conv", ["xd", "wd"], ["y"]),
    ]
    inputs = [value("x", [2, 8, 9, 11])]
    proto = model(nodes, inputs, ["y"], {k: np.asarray(v) for k, v in constants.items()})
    graph = imported(proto, tmp_path)
    assert operations(graph)["conv2d"] == 1
    x = RNG.normal(size=(2, 8, 9, 11)).astype(np.float32)
    require_steps(proto, graph, {"x": x}, 1e-3)


@pytest.mark.parametrize("rows", [5, "n"])
def test_products(tmp_path: Path, rows: int | str) -> None:
    """A matrix with a scale of each column; what is read elsewhere, too, is there in floats."""
    constants = {
        "scale": np.float32(0.02),
        "zero": np.int8(-3),
        "w": RNG.integers(-128, 128, (70, 60)).astype(np.int8),
        "w_scale": RNG.uniform(0.001, 0.01, 60).astype(np.float32),
        "w_zero": np.zeros(60, np.int8),
        "bias": RNG.normal(size=60).astype(np.float32),
        "to": np.float32(0.07),
    }
    nodes = [
        *between("x", "xd", "zero"),
        node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"], axis=1),
        node("MatMul", ["xd", "wd"], ["m"]),
        node("Add", ["m", "bias"], ["b"]),
        *between("b", "bd", "zero", "to"),
        node("ReduceMean", ["xd"], ["mean"], keepdims=0),
        node("Add", ["bd", "mean"], ["y"]),
    ]
    proto = model(
        nodes,
        [value("x", [2, rows, 70])],
        ["y"],
        {k: np.asarray(v) for k, v in constants.items()},
        opset=17,
    )
    graph = imported(proto, tmp_path)
    assert operations(graph)["integer_convolution"] == 1
    x = RNG.normal(size=(2, 5, 70)).astype(np.float32)
    require_steps(proto, graph, {"x": x}, 0.07)


def test_one_weight_with_two_zero_points(tmp_path: Path) -> None:
    """Each product has the weight less its own zero point."""
    constants = constants_of(
        scale=np.float32(0.03),
        zero=np.uint8(120),
        w=RNG.integers(60, 180, (70, 64), np.uint8),
        one=np.uint8(128),
        other=np.uint8(110),
    )
    nodes = [
        *between("x", "xd", "zero"),
        node("DequantizeLinear", ["w", "scale", "one"], ["w1"]),
        node("DequantizeLinear", ["w", "scale", "other"], ["w2"]),
        node("MatMul", ["xd", "w1"], ["y1"]),
        node("MatMul", ["xd", "w2"], ["y2"]),
        node("Sub", ["y1", "y2"], ["y"]),
    ]
    proto = model(nodes, [value("x", [3, 70])], ["y"], constants)
    graph = imported(proto, tmp_path)
    assert operations(graph)["integer_convolution"] == 2
    require_steps(proto, graph, {"x": RNG.normal(size=(3, 70)).astype(np.float32)}, 1e-3)


def test_a_relu_before_a_scale_below_zero(tmp_path: Path) -> None:
    """Numbers below 0 are cut before the scale makes them positive."""
    constants = constants_of(scale=np.float32(0.05), to=np.float32(-0.05), zero=np.uint8(0))
    constants["middle"] = np.asarray(np.uint8(100))
    nodes = [
        *between("x", "xd", "middle"),
        node("Relu", ["xd"], ["r"]),
        node("QuantizeLinear", ["r", "to", "middle"], ["q"]),
        node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = model(nodes, [value("x", [4])], ["y"], constants)
    x = np.array([-1, -0.5, 0.5, 1], np.float32)
    (got,) = by_definitions(imported(proto, tmp_path), {"x": x})
    np.testing.assert_array_equal(got, [100, 100, 90, 80])


def test_a_wide_number_with_a_zero_point(tmp_path: Path) -> None:
    """The zero point is taken off an int32 before it becomes a float."""
    constants = constants_of(scale=np.float32(1), far=np.int32(1 << 24), zero=np.uint8(0))
    nodes = [
        node("DequantizeLinear", ["x", "scale", "far"], ["d"]),
        node("QuantizeLinear", ["d", "scale", "zero"], ["q"]),
        node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = model(nodes, [value("x", [2], TensorProto.INT32)], ["y"], constants)
    x = np.array([(1 << 24) + 1, (1 << 24) + 3], np.int32)
    (got,) = by_definitions(imported(proto, tmp_path), {"x": x})
    np.testing.assert_array_equal(got, [1, 3])


def test_a_product_of_wider_numbers(tmp_path: Path) -> None:
    """A type that is no byte keeps its range."""
    constants = constants_of(
        **{name: np.float32(1) for name in ("as", "bs", "ys")},
        az=np.uint8(0),
        bz=np.int8(0),
        yz=np.int16(0),
        b=np.full((8, 2), 10, np.int8),
    )
    names = ["x", "as", "az", "b", "bs", "bz", "ys", "yz"]
    nodes = [
        node("QLinearMatMul", names, ["q"]),
        node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = model(nodes, [value("x", [1, 8], TensorProto.UINT8)], ["y"], constants)
    (got,) = by_definitions(imported(proto, tmp_path), {"x": np.full((1, 8), 10, np.uint8)})
    np.testing.assert_array_equal(got, [[800, 800]])


@pytest.mark.parametrize("on_bytes", [True, False])
def test_images_of_any_size_are_of_bytes_unless_floats_are_asked_for(
    tmp_path: Path, on_bytes: bool
) -> None:
    constants = constants_of(
        scale=np.float32(0.03), zero=np.uint8(120), w=RNG.integers(-9, 9, (4, 8, 3, 3)).astype("i1")
    )
    constants["middle"] = np.asarray(np.int8(0))
    nodes = [
        *between("x", "xd", "zero"),
        node("DequantizeLinear", ["w", "scale", "middle"], ["wd"]),
        node("Conv", ["xd", "wd"], ["y"]),
    ]
    proto = model(nodes, [value("x", [2, 8, "h", "w"])], ["y"], constants)
    graph = imported(proto, tmp_path, on_bytes=on_bytes)
    assert operations(graph)["conv2d"] == (not on_bytes)
    assert operations(graph)["integer_convolution"] == on_bytes
    x = RNG.normal(size=(2, 8, 9, 11)).astype(np.float32)
    require_steps(proto, graph, {"x": x}, 1e-3)


@pytest.mark.parametrize("op", ["ConvInteger", "MatMulInteger"])
def test_sums_are_exact(tmp_path: Path, op: str) -> None:
    is_conv = op == "ConvInteger"
    shapes = ((2, 8, 9, 11), (80, 8, 3, 3)) if is_conv else ((2, 7, 70), (70, 60))
    x = RNG.integers(0, 256, shapes[0], np.uint8)
    # Of more than 7 bits onnxruntime's own sums saturate where the CPU has no VNNI.
    w = RNG.integers(-64, 64, shapes[1]).astype(np.int8)
    constants = {"w": w, "zero": np.uint8(200), "w_zero": np.int8(0)}
    attributes = {"pads": [1, 2, 0, 1]} if is_conv else {}
    proto = model(
        [node(op, ["x", "w", "zero", "w_zero"], ["y"], **attributes)],
        [value("x", shapes[0], TensorProto.UINT8)],
        ["y"],
        {k: np.asarray(v) for k, v in constants.items()},
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    graph = imported(proto, tmp_path)
    assert operations(graph)["integer_convolution"] == 1
    (wanted,) = in_onnxruntime(proto, {"x": x}).values()
    np.testing.assert_array_equal(by_definitions(graph, {"x": x})[0], wanted)
    np.testing.assert_array_equal(in_compiled(graph)({"x": x})[0], wanted)


@pytest.mark.parametrize("rows", [["n", 70], [2, "n", 70]])
@pytest.mark.parametrize(
    ("dtype", "start"),
    [
        ("i1", 0),
        ("u1", 131),
        ("u1", 3),
        ("u1", None),
        ("i1", range(-5, 55)),
        ("u1", range(90, 150)),
    ],
)
def test_sums_of_bytes_whose_zero_point_is_computed(
    tmp_path: Path, rows: list[int | str], dtype: str, start: Any
) -> None:
    """Dynamic quantization: what a zero point takes off is known from sums of columns and rows."""
    sizes = [5 if isinstance(size, str) else size for size in rows]
    x, zero = RNG.integers(0, 256, sizes, np.uint8), np.uint8(77)
    low, high = (0, 128) if dtype == "u1" else (-64, 64)
    constants = {"w": RNG.integers(low, high, (70, 60)).astype(dtype)}
    names = ["x", "w", "zero"]
    if start is not None:
        constants["w_zero"] = np.asarray(start, dtype)
        names.append("w_zero")
    proto = model(
        [node("MatMulInteger", names, ["y"])],
        [value("x", rows, TensorProto.UINT8), value("zero", [], TensorProto.UINT8)],
        ["y"],
        constants,
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    graph = imported(proto, tmp_path)
    assert operations(graph)["integer_convolution"] == 1
    feeds = {"x": x, "zero": np.asarray(zero)}
    less = constants["w"].astype("i8") - np.asarray(0 if start is None else start, "i8")
    wanted = (x.astype("i8") - 77) @ less
    np.testing.assert_array_equal(by_definitions(graph, feeds)[0], wanted)
    np.testing.assert_array_equal(in_compiled(graph)(feeds)[0], wanted)


@pytest.mark.parametrize("rows", [["n", 24], ["b", "n", 24]])
def test_products_of_no_rows(tmp_path: Path, rows: list[int | str]) -> None:
    constants = constants_of(w=RNG.integers(-9, 9, (24, 40)).astype("i1"), zero=np.uint8(7))
    proto = model(
        [node("MatMulInteger", ["x", "w", "zero"], ["y"])],
        [value("x", rows, TensorProto.UINT8)],
        ["y"],
        constants,
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    run = in_compiled(imported(proto, tmp_path))
    for size in (0, 1, 40):
        x = RNG.integers(0, 256, [*[2] * (len(rows) - 2), size, 24], np.uint8)
        wanted = (x.astype("i4") - 7) @ constants["w"].astype("i4")
        np.testing.assert_array_equal(run({"x": x})[0], wanted)


@pytest.mark.parametrize("zero", ["known", "computed"])
def test_sums_are_of_products_that_no_transform_rounds(tmp_path: Path, zero: str) -> None:
    """Filters of 3 x 3, for which floats have transforms; these do not fit int8."""
    x, w = RNG.integers(0, 256, (1, 28, 16, 16), np.uint8), RNG.integers(0, 256, (32, 28, 3, 3))
    constants = {"w": w.astype("u1"), "w_zero": np.asarray(np.uint8(100))}
    inputs = [value("x", x.shape, TensorProto.UINT8)]
    if zero == "known":
        constants["zero"] = np.asarray(np.uint8(99))
    else:
        inputs.append(value("zero", [], TensorProto.UINT8))
    nodes = [node("ConvInteger", ["x", "w", "zero", "w_zero"], ["y"], pads=[1, 1, 1, 1])]
    proto = model(nodes, inputs, ["y"], constants)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    graph = imported(proto, tmp_path)
    feeds = {"x": x} | ({} if zero == "known" else {"zero": np.asarray(np.uint8(99))})
    (wanted,) = by_definitions(graph, feeds)
    np.testing.assert_array_equal(in_compiled(graph)(feeds)[0], wanted)


@pytest.mark.parametrize("start", [0, 131, range(90, 170)])
def test_convolutions_of_bytes_whose_zero_point_is_computed(tmp_path: Path, start: Any) -> None:
    """More terms than float32 adds up exactly, around which is the zero point."""
    x, w = RNG.integers(0, 256, (2, 70, 5, 6), np.uint8), RNG.integers(0, 256, (80, 70, 3, 3))
    constants = {"w": w.astype("u1"), "w_zero": np.asarray(start, "u1")}
    proto = model(
        [node("ConvInteger", ["x", "w", "zero", "w_zero"], ["y"], pads=[1, 1, 1, 1])],
        [value("x", ["n", 70, "h", "w"], TensorProto.UINT8), value("zero", [], TensorProto.UINT8)],
        ["y"],
        constants,
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    graph = imported(proto, tmp_path)
    assert operations(graph)["conv2d"] == 3
    feeds = {"x": x, "zero": np.asarray(np.uint8(99))}
    around = np.pad(x.astype("i8") - 99, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    filters = w - np.asarray(start).reshape(-1, 1, 1, 1)
    wanted = np.einsum("nchwrs,fcrs->nfhw", seen, filters)
    np.testing.assert_array_equal(by_definitions(graph, feeds)[0], wanted)
    np.testing.assert_array_equal(in_compiled(graph)(feeds)[0], wanted)
