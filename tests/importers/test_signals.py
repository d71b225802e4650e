"""Transforms, determinants, distinct elements and moved windows, compiled, beside NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from maxtool.errors import ModelMismatch
from maxtool.importers.onnx import import_model, open_model
from tests.importers.beside_onnxruntime import in_compiled
from tests.importers.models import model, saved, value

RNG = np.random.default_rng(3)


def run(
    op: str,
    inputs: Mapping[str, np.ndarray],
    folder: Path,
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: tuple[str, ...] = ("y",),
    **attributes: Any,
) -> list[np.ndarray]:
    names = [*inputs, *(constants or {})]
    infos = [
        value(name, one.shape, helper.np_dtype_to_tensor_dtype(one.dtype))
        for name, one in inputs.items()
    ]
    node = helper.make_node(op, names, list(outputs), **attributes)
    proto = model([node], infos, outputs, constants)
    return in_compiled(import_model(open_model(saved(proto, folder))))(inputs)


@pytest.mark.parametrize("points", [16, 15])
def test_transforms_there_and_back(points: int, tmp_path: Path) -> None:
    x = RNG.normal(size=(2, points, 3, 1)).astype(np.float32)
    axis = {"length": np.array(points), "axis": np.array(1)}
    (there,) = run("DFT", {"x": x}, tmp_path, axis, onesided=1)
    expected = np.fft.rfft(x[..., 0], axis=1)
    np.testing.assert_allclose(there[..., 0] + 1j * there[..., 1], expected, 1e-4, 1e-5)
    (back,) = run("DFT", {"x": there}, tmp_path, axis, onesided=1, inverse=1)
    np.testing.assert_allclose(back, x, 1e-4, 1e-5)


def test_transforms_of_more_and_fewer_points(tmp_path: Path) -> None:
    x = RNG.normal(size=(2, 10, 2)).astype(np.float32)
    for points in (7, 13):
        axis = {"length": np.array(points), "axis": np.array(-2)}
        (result,) = run("DFT", {"x": x}, tmp_path, axis, inverse=1)
        expected = np.fft.ifft(x[..., 0] + 1j * x[..., 1], points, axis=1)
        np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], expected, 1e-4, 1e-5)


def test_windows_of_a_signal(tmp_path: Path) -> None:
    x, window = RNG.normal(size=(2, 50)).astype(np.float32), np.hanning(16).astype(np.float32)
    (result,) = run("STFT", {"x": x}, tmp_path, {"step": np.array(5), "window": window})
    windows = np.lib.stride_tricks.sliding_window_view(x, 16, axis=1)[:, ::5] * window
    expected = np.fft.rfft(windows, axis=-1)
    np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], expected, 1e-4, 1e-4)


def test_windows_of_a_signal_of_a_named_size(tmp_path: Path) -> None:
    window = np.hanning(16).astype(np.float32)
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"])
    info = value("x", [2, "n"], TensorProto.FLOAT)
    proto = model([node], [info], ("y",), {"step": np.array(5), "window": window})
    compiled = in_compiled(import_model(open_model(saved(proto, tmp_path))))
    for length in (50, 49, 16):
        x = RNG.normal(size=(2, length)).astype(np.float32)
        (result,) = compiled({"x": x})
        windows = np.lib.stride_tricks.sliding_window_view(x, 16, axis=1)[:, ::5] * window
        expected = np.fft.rfft(windows, axis=-1)
        assert result.shape == (*expected.shape, 2)
        np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], expected, 1e-4, 1e-4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_determinants(size: int, tmp_path: Path) -> None:
    x = RNG.normal(size=(4, size, size)).astype(np.float32)
    x[1] = 0.0
    x[2, 0] = x[2, size - 1]
    x[3, 0, 0] = 0.0
    (result,) = run("Det", {"x": x}, tmp_path)
    np.testing.assert_allclose(result, np.linalg.det(x.astype(float)), 1e-4, 1e-5)


@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("numbers", [[2, 1, 1, 3, 4, 3], [5]])
def test_distinct_elements(numbers: list[int], in_order: int, tmp_path: Path) -> None:
    x = np.array(numbers, np.float32)
    names = ("values", "first", "inverse", "counts")
    results = run("Unique", {"x": x}, tmp_path, outputs=names, sorted=in_order)
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.arange(len(first)) if in_order else np.argsort(first)
    expected = [values[order], first[order], np.argsort(order)[inverse], counts[order]]
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_offsets_of_whole_pixels_move_a_convolution(tmp_path: Path) -> None:
    x = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
    weight = RNG.normal(size=(2, 2, 1, 1)).astype(np.float32)
    offset = np.zeros((1, 4, 6, 6), np.float32)
    offset[:, 0] = 2.0
    offset[:, 3] = -1.0
    inputs = {"x": x, "w": weight, "o": offset}
    (result,) = run("DeformConv", inputs, tmp_path, offset_group=2, group=2)
    moved = np.zeros_like(x)
    moved[:, :2, :-2] = x[:, :2, 2:]
    moved[:, 2:, :, 1:] = x[:, 2:, :, :-1]
    expected = [
        np.einsum("bcyx,c->byx", moved[:, 2 * g : 2 * g + 2], weight[g, :, 0, 0]) for g in range(2)
    ]
    np.testing.assert_allclose(result, np.stack(expected, 1), 1e-4, 1e-4)


def test_a_transform_of_a_named_size_is_refused(tmp_path: Path) -> None:
    infos = [value("x", [1, "n", 1], TensorProto.FLOAT)]
    proto = model([helper.make_node("DFT", ["x"], ["y"])], infos, ["y"])
    with pytest.raises(ModelMismatch, match="the transform of a named size"):
        import_model(open_model(saved(proto, tmp_path)))
