"""Quantized operators of com.microsoft, beside onnxruntime and plain NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from maxtool.importers.onnx import import_model, open_model
from maxtool.quantization import QuantizationEncoding
from tests.importers.backend_suite import by_definitions
from tests.importers.beside_onnxruntime import in_onnxruntime
from tests.importers.models import model, saved, value

MICROSOFT = "com.microsoft"
dtype_of = helper.np_dtype_to_tensor_dtype
RNG = np.random.default_rng(7)
BYTES = RNG.integers(0, 256, (2, 3, 4, 5), np.uint8)
SIGNED = RNG.integers(-128, 128, (2, 3, 4, 5)).astype(np.int8)
# Of matrices of more than 7 bits onnxruntime's own sums saturate where the CPU has no VNNI.
MATRICES = RNG.integers(0, 256, (6, 8), np.uint8), RNG.integers(-64, 64, (8, 5)).astype(np.int8)


def scale(number: float) -> np.ndarray:
    return np.array(number, np.float32)


def one_node(
    op: str,
    inputs: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any],
    dtype: np.dtype[Any],
    constants: Sequence[int] = (),
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and the values of its inputs; some are initializers."""
    names = [f"x{at}" if one is not None else "" for at, one in enumerate(inputs)]
    arrays = {name: one for name, one in zip(names, inputs, strict=True) if one is not None}
    fixed = {f"x{at}": arrays.pop(f"x{at}") for at in constants if f"x{at}" in arrays}
    infos = [value(name, one.shape, dtype_of(one.dtype)) for name, one in arrays.items()]
    node = helper.make_node(op, names, ["y"], domain=MICROSOFT, **attributes)
    proto = model([node], infos, ["y"], fixed, domains={MICROSOFT: 1})
    proto.graph.output[0].type.tensor_type.elem_type = dtype_of(dtype)
    return proto, arrays


A = (BYTES, scale(0.02), np.array(120, np.uint8))
B = (BYTES[:, ::-1].copy(), scale(0.03), np.array(131, np.uint8))
S = (SIGNED, scale(0.05), np.array(-3, np.int8))
TO = (scale(0.06), np.array(100, np.uint8))
TO_SIGNED = (scale(0.11), np.array(5, np.int8))
LEFT, RIGHT = MATRICES
COLUMNS = RNG.uniform(0.01, 0.1, 5).astype(np.float32)
SUMS = RNG.integers(-999, 999, 5).astype(np.int32)
NORMAL = RNG.normal(size=(3, 6, 8)).astype(np.float32)
ELEMENTS = {
    "QLinearAdd": ((*A, *B, *TO), {}),
    "QLinearMul": ((*A, *B, *TO), {}),
    "QLinearAdd signed": ((*S, *S, *TO_SIGNED), {}),
    "QLinearSigmoid": ((*A, scale(1 / 255), np.array(0, np.uint8)), {}),
    "QLinearLeakyRelu": ((*S, *TO_SIGNED), {"alpha": 0.2}),
    "QLinearSoftmax": ((*A, scale(1 / 255), np.array(0, np.uint8)), {"axis": -1, "opset": 13}),
    "QLinearGlobalAveragePool": ((*A, *TO), {"channels_last": 0}),
    "QLinearConcat": ((*TO, *A, *B), {"axis": 1}),
    "QGemm": (
        (LEFT, *A[1:], RIGHT, scale(0.04), np.array(2, np.int8), SUMS, *TO),
        {"alpha": 0.5},
    ),
}
FLOATS = {
    "MatMulIntegerToFloat": ((LEFT, RIGHT, A[1], COLUMNS, A[2], np.zeros(5, np.int8), COLUMNS)),
    "DynamicQuantizeMatMul": ((NORMAL, RIGHT, COLUMNS, np.zeros(5, np.int8), COLUMNS)),
}


def evaluated(proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray], folder: Path) -> np.ndarray:
    (result,) = by_definitions(import_model(open_model(saved(proto, folder))), inputs)
    return result


@pytest.mark.peers
@pytest.mark.parametrize("name", ELEMENTS)
def test_quantized_elements(name: str, tmp_path: Path) -> None:
    """A level may differ where float32 decides a tie otherwise, and softmax is of tables there."""
    operands, attributes = ELEMENTS[name]
    proto, inputs = one_node(name.split()[0], operands, attributes, operands[-1].dtype)
    if name == "QLinearConcat":
        proto.graph.output[0].type.tensor_type.elem_type = dtype_of(np.dtype(np.uint8))
    expected = in_onnxruntime(proto, inputs)["y"].astype(int)
    actual = evaluated(proto, inputs, tmp_path).astype(int)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= 1
    assert (actual != expected).mean() < (0.3 if "Softmax" in name else 0.05)


@pytest.mark.peers
@pytest.mark.parametrize("name", FLOATS)
def test_products_that_give_floats(name: str, tmp_path: Path) -> None:
    proto, inputs = one_node(name, FLOATS[name], {}, np.dtype(np.float32))
    expected = in_onnxruntime(proto, inputs)["y"]
    np.testing.assert_allclose(evaluated(proto, inputs, tmp_path), expected, 1e-4, 1e-4)


def blocks(
    bits: int, size: int, columns: int, *, zeros: str, halves: bool
) -> tuple[list[np.ndarray | None], np.ndarray, dict[str, Any]]:
    """Operands of MatMulNBits after the first, the matrix that they mean, and the attributes."""
    rows, count, rng = 6, -(-columns // size), np.random.default_rng(bits + size)
    levels = rng.integers(0, 1 << bits, (rows, count, size), np.uint8)
    scales = rng.uniform(0.01, 0.1, (rows, count)).astype(np.float16 if halves else np.float32)
    scales = scales.astype(np.float32)
    middles = rng.integers(0, 1 << bits, (rows, count), np.uint8)
    if zeros == "none":
        middles = np.full((rows, count), 1 << (bits - 1), np.uint8)
    matrix = (levels.astype(np.float32) - middles[..., None]) * scales[..., None]
    given = {"none": None, "packed": packed(middles, bits), "floats": middles.astype(np.float32)}
    attributes = {"K": columns, "N": rows, "bits": bits, "block_size": size}
    operands = [packed(levels, bits), scales, given[zeros]]
    return operands, matrix.reshape(rows, -1)[:, :columns], attributes


def packed(levels: np.ndarray, bits: int) -> np.ndarray:
    each = 8 // bits
    rest = -levels.shape[-1] % each
    wide = np.pad(levels, [(0, 0)] * (levels.ndim - 1) + [(0, rest)])
    parts = wide.reshape(*wide.shape[:-1], -1, each) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=-1).astype(np.uint8)


CASES = [
    (4, 32, 64, "none", True, QuantizationEncoding.Q4_0),
    (4, 128, 256, "none", True, QuantizationEncoding.Q4_0),
    (4, 128, 160, "none", True, QuantizationEncoding.Q4_0),
    (8, 64, 128, "none", True, QuantizationEncoding.Q8_0),
    (4, 32, 64, "none", False, None),
    (4, 16, 64, "packed", True, None),
    (4, 32, 80, "packed", True, None),
    (4, 32, 96, "floats", False, None),
    (8, 32, 64, "packed", True, None),
    (2, 32, 64, "none", True, None),
]


@pytest.mark.parametrize(("bits", "size", "columns", "zeros", "halves", "encoding"), CASES)
def test_matrices_in_blocks(
    bits: int,
    size: int,
    columns: int,
    zeros: str,
    halves: bool,
    encoding: QuantizationEncoding | None,
    tmp_path: Path,
) -> None:
    operands, matrix, attributes = blocks(bits, size, columns, zeros=zeros, halves=halves)
    x = np.random.default_rng(0).normal(size=(2, 3, columns)).astype(np.float32)
    inputs = [x, *operands, None, np.arange(6, dtype=np.float32)]
    constants = range(1, 6)
    proto, given = one_node("MatMulNBits", inputs, attributes, x.dtype, constants)
    imported = import_model(open_model(saved(proto, tmp_path)))
    (weight,) = imported.graph.owners.values()
    assert weight.quantization_encoding is encoding
    (result,) = by_definitions(imported, given)
    np.testing.assert_allclose(result, x.astype(float) @ matrix.T + np.arange(6), 1e-6, 1e-6)


def test_a_zero_point_whose_product_is_a_half_stays_quantized(tmp_path: Path) -> None:
    operands, _, attributes = blocks(4, 32, 64, zeros="packed", halves=True)
    levels, scales, zeros = operands
    inputs = [np.ones((1, 64), np.float32), levels, np.full_like(scales, 0.125), zeros]
    proto, given = one_node("MatMulNBits", inputs, attributes, scales.dtype, range(1, 4))
    imported = import_model(open_model(saved(proto, tmp_path)))
    (weight,) = imported.graph.owners.values()
    assert weight.quantization_encoding is QuantizationEncoding.Q4_1
    unpacked = np.stack([levels & 15, levels >> 4], -1).reshape(6, 2, 32).astype(float)
    middles = np.stack([zeros & 15, zeros >> 4], -1).reshape(6, 2).astype(float)
    matrix = ((unpacked - middles[..., None]) * 0.125).reshape(6, 64)
    np.testing.assert_allclose(by_definitions(imported, given)[0][0], matrix.sum(1), 1e-6)


@pytest.mark.peers
@pytest.mark.parametrize("case", CASES[:-1])
def test_matrices_in_blocks_beside_onnxruntime(case: tuple[Any, ...], tmp_path: Path) -> None:
    bits, size, columns, zeros, halves, _ = case
    operands, _, attributes = blocks(bits, size, columns, zeros=zeros, halves=halves)
    x = np.random.default_rng(0).normal(size=(2, 3, columns)).astype(np.float32)
    inputs = [x, *operands]
    proto, given = one_node("MatMulNBits", inputs, attributes, x.dtype, range(1, 4))
    expected = in_onnxruntime(proto, given)["y"]
    np.testing.assert_allclose(evaluated(proto, given, tmp_path), expected, 1e-3, 1e-3)


@pytest.mark.peers
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("by_feature", [False, True])
@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
def test_what_quantize_dynamic_makes_of_an_lstm(
    direction: str, by_feature: bool, kind: str, tmp_path: Path
) -> None:
    """The result is near that of floats; onnxruntime's is not where each feature has a scale.

    Of the first element, before which the state is zeros, both are the same.
    """
    quantization = pytest.importorskip("onnxruntime.quantization")
    count, random = 1 + (direction == "bidirectional"), np.random.default_rng(0)
    shapes = {"w": (count, 64, 6), "r": (count, 64, 16), "b": (count, 128)}
    weights = {
        name: random.normal(size=shape).astype(np.float32) * np.float32(0.4)
        for name, shape in shapes.items()
    }
    given = {"x": random.normal(size=(7, 2, 6)).astype(np.float32)}
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=16, direction=direction
    )
    proto = model([node], [value("x", given["x"].shape)], ["y"], weights)
    source = saved(proto, tmp_path, "floats.onnx")
    quantization.quantize_dynamic(
        source, tmp_path / "bytes.onnx",
        weight_type=getattr(quantization.QuantType, kind), per_channel=by_feature,
    )  # fmt: skip
    quantized = onnx.load(tmp_path / "bytes.onnx")
    assert quantized.graph.node[0].op_type == "DynamicQuantizeLSTM"
    result = evaluated(quantized, given, tmp_path)
    np.testing.assert_allclose(result, in_onnxruntime(proto, given)["y"], 0, 0.03)
    if not by_feature:
        expected = in_onnxruntime(quantized, given)["y"]
        for at, first in enumerate([0, -1] if count == 2 else [-(direction == "reverse")]):
            np.testing.assert_allclose(result[first, at], expected[first, at], 1e-5, 1e-5)
