"""Operators on quantized elements that onnxruntime adds: dequantized, computed, quantized again.

A quantized operand is three inputs: whole numbers, their scale and their zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.operators.quantizing import dequantize, quantize, requantized
from maxtool.importers.onnx.refusals import require

BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "QLinearAdd": ops.add,
    "QLinearMul": ops.mul,
}


def _real(call: OperatorCall, first: int) -> Tensor:
    """A quantized operand as float32."""
    x, scale, zero = call.x(first), call.x(first + 1), call.maybe(first + 2)
    wide = ops.cast(x, DType.int32)
    wide = wide if zero is None else wide - ops.cast(_scalar(zero), DType.int32)
    return ops.cast(wide, DType.float32) * _scalar(scale)


def _scalar(x: Tensor) -> Tensor:
    require(x.shape.volume() == 1, "scales and zero points of one element are supported")
    return ops.reshape(x, [])


def _whole(call: OperatorCall, x: Tensor, first: int, dtype: DType) -> Tensor:
    """A result as the scale and the zero point of that number say."""
    zero = call.maybe(first + 1)
    units = x / _scalar(call.x(first))
    return requantized(units, None if zero is None else _scalar(zero), dtype)


@operator(*BINARY, domain=MICROSOFT)
def binary_of_quantized(call: OperatorCall) -> Tensor:
    """Apply one of ``BINARY``."""
    call.only("", 8)
    result = BINARY[call.op_type](_real(call, 0), _real(call, 3))
    return _whole(call, result, 6, call.x(0).dtype)


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def activation_of_quantized(call: OperatorCall) -> Tensor:
    """A sigmoid, or below 0 ``alpha * x``."""
    call.only("alpha", 5)
    x = _real(call, 0)
    if call.op_type == "QLinearSigmoid":
        result = ops.sigmoid(x)
    else:
        result = ops.where(ops.less(x, 0.0), x * call.real("alpha", 0.01), x)
    return _whole(call, result, 3, call.x(0).dtype)


@operator("QLinearSoftmax", domain=MICROSOFT)
def softmax_of_quantized(call: OperatorCall) -> Tensor:
    """Softmax along an axis, or before opset 13 over all dimensions from it on."""
    call.only("axis opset", 5)
    x = _real(call, 0)
    axis = call.axis(x.rank, -1)
    if call.number("opset") >= 13:
        result = ops.softmax(x, axis)
    else:
        rows = ops.reshape(x, [x.shape[:axis].volume(), x.shape[axis:].volume()])
        result = ops.reshape(ops.softmax(rows), x.shape)
    return _whole(call, result, 3, call.x(0).dtype)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_pool_of_quantized(call: OperatorCall) -> Tensor:
    """The mean of each channel."""
    call.only("channels_last", 5)
    x = _real(call, 0)
    first = 1 if call.flag("channels_last") else 2
    axes = list(range(first, first + x.rank - 2))
    require(all(x.shape[axis].is_static for axis in axes), "images of named sizes")
    count = prod(int(x.shape[axis]) for axis in axes)
    return _whole(call, ops.sum(x, axes) / float(count), 3, call.x(0).dtype)


@operator("QLinearConcat", domain=MICROSOFT)
def concat_of_quantized(call: OperatorCall) -> Tensor:
    """Operands behind each other, with one scale."""
    call.only("axis", len(call.operands))
    count, rest = divmod(len(call.operands) - 2, 3)
    require(count > 0 and rest == 0, "each operand has a scale and a zero point")
    parts = [_real(call, 2 + 3 * number) for number in range(count)]
    whole = ops.concat(parts, call.axis(parts[0].rank))
    return _whole(call, whole, 0, call.x(2).dtype)


@operator("QLinearWhere", domain=MICROSOFT)
def where_of_quantized(call: OperatorCall) -> Tensor:
    """One of two elements."""
    call.only("", 9)
    chosen = ops.where(call.x(0), _real(call, 1), _real(call, 4))
    return _whole(call, chosen, 7, call.x(1).dtype)


@operator("QuantizeLinear", domain=MICROSOFT)
def quantize_here(call: OperatorCall) -> Tensor:
    """The operator of ONNX, which older models have in this domain."""
    call.only("axis", 3)
    return quantize(call)


@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize_here(call: OperatorCall) -> Tensor:
    """The operator of ONNX, which older models have in this domain."""
    call.only("axis", 3)
    return dequantize(call)
