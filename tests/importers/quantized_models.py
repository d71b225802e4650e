"""Small convolutional networks that onnxruntime quantizes, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests.importers.models import model, saved, value

SIZES = (3, 40, 36)
node = helper.make_node


def images(seed: int, batch: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, *SIZES)).astype(np.float32)


def network() -> onnx.ModelProto:
    """A residual block with a depthwise, a grouped and a strided convolution, and a classifier."""
    random = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []

    def drawn(*shape: int) -> str:
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        name = f"w{len(weights)}"
        weights[name] = (random.standard_normal(shape) * scale).astype(np.float32)
        return name

    def add(op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(nodes)}"
        nodes.append(node(op, inputs, [name], name=f"n{len(nodes)}", **attributes))
        return name

    def conv(x: str, features: int, inner: int, size: int, relu: bool = True, **more: int) -> str:
        pads = [size // 2] * 4
        stride = [more.get("stride", 1)] * 2
        weight = drawn(features, inner, size, size)
        group = more.get("group", 1)
        y = add("Conv", x, weight, drawn(features), pads=pads, strides=stride, group=group)
        return add("Relu", y) if relu else y

    x = conv("x", 16, 3, 7, stride=2)
    x = add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = conv(conv(x, 24, 16, 1), 24, 1, 3, group=24)
    x = add("Relu", add("Add", conv(y, 16, 24, 3, relu=False), x))
    x = conv(x, 32, 8, 3, group=2)
    flat = add("Flatten", add("GlobalAveragePool", x))
    y = add("Gemm", flat, drawn(10, 32), drawn(10), transB=1)
    proto = model(nodes, [value("x", ["n", *SIZES])], [y], weights, opset=17)
    proto.ir_version = 9
    return proto


def quantized(folder: Path, *, signed: bool, per_channel: bool, operators: bool) -> onnx.ModelProto:
    """The network as onnxruntime quantizes it: with QDQ nodes, or with quantized operators."""
    from onnxruntime import quantization

    class Images(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = [{"x": images(seed)} for seed in range(4)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    formats, types = quantization.QuantFormat, quantization.QuantType
    path = folder / "quantized.onnx"
    quantization.quantize_static(
        saved(network(), folder),
        path,
        Images(),
        quant_format=formats.QOperator if operators else formats.QDQ,
        per_channel=per_channel,
        activation_type=types.QInt8 if signed else types.QUInt8,
        weight_type=types.QInt8,
        reduce_range=True,  # else its own sums saturate where the CPU has no VNNI
    )
    return onnx.load(path)
