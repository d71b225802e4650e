"""Operands that are legal and rare, beside onnxruntime, and ranges of named sizes."""

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

node = helper.make_node


def evaluated(proto: onnx.ModelProto, folder: Path, **inputs: Any) -> np.ndarray:
    imported = import_model(open_model(saved(proto, folder)))
    (result,) = by_definitions(imported, inputs)
    return np.asarray(result)


def of_size(nodes: Sequence[onnx.NodeProto], **numbers: Any) -> onnx.ModelProto:
    """A model of a vector whose size is ``s``, a vector itself."""
    shape = node("Shape", ["x"], ["s"])
    initializers = {name: np.array(one, np.int64) for name, one in numbers.items()}
    return model([shape, *nodes], [value("x", ["n"])], ["y"], initializers)


@pytest.mark.peers
@pytest.mark.parametrize("sizes", [(5, 6), (3, 4, 5)])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("are_named", [False, True])
def test_grids_of_one_matrix_and_of_several(
    sizes: tuple[int, ...], corners: int, batch: int, are_named: bool, tmp_path: Path
) -> None:
    """The function that ONNX gives for it fails for one matrix."""
    count, random = len(sizes), np.random.default_rng(0)
    inputs = {
        "x": random.normal(size=(batch, 2, *sizes)).astype(np.float32),
        "theta": random.normal(size=(batch, count, count + 1)).astype(np.float32),
    }
    shape = ["b", 2, *"dhw"[:count]] if are_named else [batch, 2, *sizes]
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("AffineGrid", ["theta", "s"], ["y"], align_corners=corners),
    ]
    kinds = [value("x", shape), value("theta", [shape[0], count, count + 1])]
    require_equal(model(nodes, kinds, ["y"]), inputs, tmp_path, compiled=are_named)


@pytest.mark.parametrize(("op", "by"), [("Mul", 2), ("Add", 1)])
def test_a_range_that_ends_beyond_its_dimension_is_refused(
    op: str, by: int, tmp_path: Path
) -> None:
    nodes = [node(op, ["s", "by"], ["end"]), node("Slice", ["x", "zero", "end"], ["y"])]
    with pytest.raises(ModelMismatch, match="is inside a dimension of n is not known"):
        import_model(open_model(saved(of_size(nodes, by=[by], zero=[0]), tmp_path)))


def test_a_range_that_may_begin_before_its_dimension_is_refused(tmp_path: Path) -> None:
    nodes = [node("Sub", ["s", "by"], ["from"]), node("Slice", ["x", "from", "s"], ["y"])]
    with pytest.raises(ModelMismatch, match="not known in advance"):
        import_model(open_model(saved(of_size(nodes, by=[8]), tmp_path)))


def test_the_last_element_and_the_first_half_are_taken(tmp_path: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    last = [node("Sub", ["s", "by"], ["from"]), node("Slice", ["x", "from", "s"], ["y"])]
    assert evaluated(of_size(last, by=[1]), tmp_path, x=x).tolist() == [4]
    half = [node("Div", ["s", "by"], ["end"]), node("Slice", ["x", "zero", "end"], ["y"])]
    assert evaluated(of_size(half, by=[2], zero=[0]), tmp_path, x=x).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("op", "less", "other", "expected"),
    [("Div", 9, 2, -1), ("Mod", 9, 2, 1), ("Equal", 9, -3, 1), ("Mod", 0, 4, 2)],
)
def test_sizes_below_zero_are_computed_as_numbers_are(
    op: str, less: int, other: int, expected: int, tmp_path: Path
) -> None:
    nodes = [node("Sub", ["s", "less"], ["left"]), node(op, ["left", "other"], ["y"])]
    x = np.zeros(6, np.float32)
    result = evaluated(of_size(nodes, less=[less], other=[other]), tmp_path, x=x)
    assert result.tolist() == [expected]


def test_numbers_beside_sizes_have_remainders_of_the_sign_of_the_divisor(tmp_path: Path) -> None:
    nodes = [
        node("Concat", ["s", "more"], ["both"], axis=0),
        node("Mod", ["both", "by"], ["y"]),
    ]
    proto = of_size(nodes, more=[-3], by=[1, 2])
    assert evaluated(proto, tmp_path, x=np.zeros(5, np.float32)).tolist() == [0, 1]


def test_products_of_columns_of_sizes_are_kept_apart(tmp_path: Path) -> None:
    nodes = [
        node("Concat", ["s", "more"], ["both"], axis=0),
        node("Unsqueeze", ["both", "zero"], ["row"]),
        node("ReduceProd", ["row", "zero"], ["y"], keepdims=0),
    ]
    proto = of_size(nodes, more=[3], zero=[0])
    assert evaluated(proto, tmp_path, x=np.zeros(5, np.float32)).tolist() == [5, 3]


def test_the_least_whole_number_is_divided(tmp_path: Path) -> None:
    a = np.array([-(2**31), -7, 7, -6], np.int32)
    b = np.array([3, 2, -2, 3], np.int32)
    inputs = [value(name, [4], TensorProto.INT32) for name in "ab"]
    result = evaluated(model([node("Div", ["a", "b"], ["y"])], inputs, ["y"]), tmp_path, a=a, b=b)
    assert result.tolist() == [-715827882, -3, -3, -2]


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_the_least_whole_number_has_a_remainder(dtype: type, tmp_path: Path) -> None:
    least = np.iinfo(dtype).min
    a = np.array([least, least, -7, 7, -6, 7], dtype)
    b = np.array([7, -7, 2, -2, 3, 2], dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [value(name, [6], kind) for name in "ab"]
    proto = model([node("Mod", ["a", "b"], ["y"], fmod=1)], inputs, ["y"])
    result = evaluated(proto, tmp_path, a=a, b=b)
    assert result.tolist() == np.fmod(a, b).tolist()


@pytest.mark.parametrize(
    ("pads", "expected"),
    [([-1, 2], [1, 2, 3, 4, 1, 2]), ([2, -2], [1, 2, 0, 1, 2]), ([-2, 3], [2, 3, 4, 2, 3, 4])],
)
def test_what_is_cut_off_is_not_wrapped_around(
    pads: list[int], expected: list[int], tmp_path: Path
) -> None:
    nodes = [node("Pad", ["x", "pads"], ["y"], mode="wrap")]
    proto = model(nodes, [value("x", [5])], ["y"], {"pads": np.array(pads)})
    result = evaluated(proto, tmp_path, x=np.arange(5, dtype=np.float32))
    assert result.tolist() == expected


@pytest.mark.parametrize(("scale", "size"), [(0.7, 7), (2.3, 23), (0.35, 3)])
def test_sizes_are_scaled_in_float32(scale: float, size: int, tmp_path: Path) -> None:
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="linear")]
    scales = {"scales": np.array([1, 1, scale], np.float32)}
    proto = model(nodes, [value("x", [1, 1, 10])], ["y"], scales)
    assert evaluated(proto, tmp_path, x=np.zeros((1, 1, 10), np.float32)).shape == (1, 1, size)


def test_an_output_shape_beyond_the_windows_grows_behind(tmp_path: Path) -> None:
    attributes = {"strides": [2], "output_shape": [5], "auto_pad": "SAME_UPPER"}
    nodes = [node("ConvTranspose", ["x", "w"], ["y"], **attributes)]
    weight = {"w": np.ones((1, 1, 2), np.float32)}
    proto = model(nodes, [value("x", [1, 1, 2])], ["y"], weight)
    result = evaluated(proto, tmp_path, x=np.array([[[1, 2]]], np.float32))
    assert result.tolist() == [[[1, 1, 2, 2, 0]]]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [((-7, -9, -1), [0]), ((-7, 9, -1), []), ((9, -7, -2), [2, 0]), ((-7, 9, 2), [0, 2])],
)
def test_a_range_that_runs_backwards_begins_inside(
    bounds: tuple[int, int, int], expected: list[int], tmp_path: Path
) -> None:
    names = ("from", "to", "axes", "steps")
    numbers = dict(zip(names, ([bounds[0]], [bounds[1]], [0], [bounds[2]]), strict=True))
    nodes = [node("Slice", ["x", *names], ["y"])]
    given = {name: np.array(one, np.int64) for name, one in numbers.items()}
    proto = model(nodes, [value("x", [3])], ["y"], given)
    assert evaluated(proto, tmp_path, x=np.arange(3, dtype=np.float32)).tolist() == expected


@pytest.mark.parametrize("size", [4, "n"])
def test_one_element_by_pytorchs_half_pixels_is_the_first(size: int | str, tmp_path: Path) -> None:
    options = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    nodes = [node("Resize", ["x", "", "", "sizes"], ["y"], **options)]
    proto = model(nodes, [value("x", [1, 1, size])], ["y"], {"sizes": np.array([1, 1, 1])})
    x = np.array([[[3, 5, 2, 8]]], np.float32)
    assert evaluated(proto, tmp_path, x=x).tolist() == [[[3]]]
