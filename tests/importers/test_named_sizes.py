"""Models whose sizes have names, beside onnxruntime at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from maxtool.errors import ModelMismatch
from maxtool.importers.onnx import import_model, open_model
from tests.importers.beside_onnxruntime import require_equal
from tests.importers.models import model, saved, value

pytestmark = pytest.mark.peers
node = helper.make_node
RANDOM = np.random.default_rng(5)
IMAGES = ["n", 3, "h", "w"]


def images(*sizes: tuple[int, int, int]) -> list[dict[str, np.ndarray]]:
    shapes = [(batch, 3, *size) for batch, *size in sizes]
    return [{"x": RANDOM.normal(size=shape).astype(np.float32)} for shape in shapes]


def of_images(
    nodes: Sequence[onnx.NodeProto], numbers: Mapping[str, Any] | None = None
) -> onnx.ModelProto:
    filters = RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32)
    given = {name: np.asarray(one) for name, one in (numbers or {}).items()}
    return model(nodes, [value("x", IMAGES)], ["y"], {"f": filters, **given})


def test_branches_of_a_network_meet_where_sizes_fit(tmp_path: Path) -> None:
    """Detectors halve twice, double, and join that with what was halved once."""
    nodes = [
        node("Conv", ["x", "f"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["b", "", "scales"], ["c"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Concat", ["a", "c"], ["y"], axis=1),
    ]  # fmt: skip
    proto = of_images(nodes, {"scales": np.array([1, 1, 2, 2], np.float32)})
    require_equal(proto, images((1, 4, 8), (2, 16, 12)), tmp_path)


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_keeps_sizes_as_strides_say(pad: str, tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "f"], ["a"], strides=[2, 2], auto_pad=pad),
        node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2], auto_pad=pad),
        node("AveragePool", ["b"], ["y"], kernel_shape=[2, 2], strides=[1, 1], auto_pad=pad),
    ]
    require_equal(of_images(nodes), images((1, 7, 10), (2, 5, 1)), tmp_path)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_with_elements(mode: str, tmp_path: Path) -> None:
    proto = of_images([node("Pad", ["x", "p"], ["y"], mode=mode)], {"p": [0, 0, 2, 1, 0, 0, 0, 3]})
    require_equal(proto, images((1, 4, 5), (2, 9, 4)), tmp_path)


@pytest.mark.parametrize("before", [True, False])
def test_padding_to_a_size_takes_elements_away_too(before: bool, tmp_path: Path) -> None:
    """Speech is cut or filled up to half a minute."""
    nodes = [
        node("Shape", ["x"], ["width"], start=3),
        node("Sub", ["eight", "width"], ["rest"]),
        node("Concat", ["rest", "zero"] if before else ["zero", "rest"], ["p"], axis=0),
        node("Pad", ["x", "p", "value", "axes"], ["y"]),
    ]
    held = {"eight": [8], "zero": [0], "value": np.float32(3.5), "axes": [3]}
    require_equal(of_images(nodes, held), images((1, 4, 5), (2, 4, 8), (1, 3, 11)), tmp_path)


@pytest.mark.parametrize("largest", [0, 1])
def test_all_elements_in_order(largest: int, tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["many"], start=2, end=3),
        node("TopK", ["x", "many"], ["y", "places"], axis=2, largest=largest),
    ]
    require_equal(of_images(nodes), images((1, 4, 5), (2, 9, 4)), tmp_path)


@pytest.mark.parametrize("fmod", [0, 1])
def test_whole_frames_alone(fmod: int, tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["width"], start=3),
        node("Sub", ["width", "two"], ["further"])
        if not fmod
        else node("Identity", ["width"], ["further"]),
        node("Mod", ["further", "three"], ["rest"], fmod=fmod),
        node("Sub", ["width", "rest"], ["end"]),
        node("Slice", ["x", "zero", "end", "axis"], ["y"]),
    ]
    held = {"two": [2], "three": [3], "zero": [0], "axis": [3]}
    require_equal(of_images(nodes, held), images((1, 4, 5), (2, 4, 6), (1, 3, 7)), tmp_path)


def test_images_become_as_large_as_others(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "f"], ["a"], strides=[3, 2]),
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "two", "four"], ["sizes"]),
        node("Shape", ["a"], ["own"]),
        node("Slice", ["own", "zero", "two"], ["front"]),
        node("Concat", ["front", "sizes"], ["wanted"], axis=0),
        node("Resize", ["a", "", "", "wanted"], ["y"], mode="linear"),
    ]
    proto = of_images(nodes, {"zero": [0], "two": [2], "four": [4]})
    require_equal(proto, images((1, 7, 10), (2, 4, 3)), tmp_path)


def test_ends_that_no_dimension_reaches(tmp_path: Path) -> None:
    """Exporters write the largest int32, and others 10 ** 9."""
    numbers = {"from": [1, 0], "to": [(1 << 31) - 1, 10**9], "axes": [2, 3]}
    proto = of_images([node("Slice", ["x", "from", "to", "axes"], ["y"])], numbers)
    require_equal(proto, images((1, 4, 5)), tmp_path)


def test_sizes_are_divided_by_sums_and_again_and_again(tmp_path: Path) -> None:
    """Heads of a sequence that convolutions made shorter, whose size was computed otherwise."""
    nodes = [
        node("AveragePool", ["x"], ["a"], kernel_shape=[1, 2], strides=[1, 2]),
        node("AveragePool", ["a"], ["b"], kernel_shape=[1, 2], strides=[1, 2]),
        node("Slice", ["b", "one", "end", "three"], ["c"]),
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "three", "four"], ["width"]),
        node("Div", ["width", "four"], ["fourth"]),
        node("Sub", ["fourth", "one"], ["less"]),
        node("Concat", ["less", "free", "three"], ["wanted"], axis=0),
        node("Reshape", ["c", "wanted"], ["y"]),
    ]
    numbers = {"one": [1], "three": [3], "four": [4], "free": [-1], "end": [1 << 60]}
    require_equal(of_images(nodes, numbers), images((1, 2, 9), (2, 3, 20)), tmp_path)


def test_question_marks_are_different_sizes(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "f"], ["y"])]
    proto = of_images(nodes)
    for dim in proto.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_param = "?"
    require_equal(proto, images((1, 4, 7)), tmp_path)


def test_operands_that_agree_by_other_names(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "z"], ["p"]),
        node("Add", ["p", "bias"], ["q"]),
        node("Concat", ["q", "x"], ["y"], axis=1),
    ]
    inputs = [value("x", ["a", "b"]), value("z", ["c", "d"]), value("bias", ["e"])]
    proto = model(nodes, inputs, ["y"])
    shapes = {"x": (2, 4), "z": (4, 3), "bias": (3,)}
    given = {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    require_equal(proto, given, tmp_path)


def test_numbers_up_to_a_size_as_a_float(tmp_path: Path) -> None:
    """Detectors make their grids so."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "three"], ["width"], axis=0),
        node("Cast", ["width"], ["wide"], to=TensorProto.FLOAT),
        node("Range", ["zero", "wide", "one"], ["numbers"]),
        node("Add", ["numbers", "half"], ["y"]),
    ]
    floats = {name: np.array(n, np.float32) for name, n in (("zero", 0), ("one", 1), ("half", 0.5))}
    require_equal(of_images(nodes, {"three": 3, **floats}), images((1, 4, 5)), tmp_path)


@pytest.mark.parametrize("scale", [np.pi, 0.0, -2.0, np.nan])
def test_scales_of_named_sizes_are_simple(scale: float, tmp_path: Path) -> None:
    scales = np.array([1, 1, scale, 1], np.float32)
    proto = of_images([node("Resize", ["x", "", "s"], ["y"], mode="linear")], {"s": scales})
    with pytest.raises(ModelMismatch, match="a named size is scaled by"):
        import_model(open_model(saved(proto, tmp_path)))
