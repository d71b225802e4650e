"""Operators between floats and whole numbers with a scale, and products of such numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in, dtype_of
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.convolving import convolved
from maxtool.importers.onnx.refusals import require

EXACT_TERMS = 1 << 8
"""Products of bytes that float32 adds up exactly."""


def _spread(call: OperatorCall, values: Tensor, x: Tensor) -> Tensor:
    """Scales or zero points, of all elements, of an axis or of blocks, as they broadcast."""
    if values.rank == 0 or (values.rank == 1 and values.shape[0] == 1 and x.rank != 1):
        return ops.reshape(values, [])
    axis = axis_in(call.number("axis", 1), x.rank)
    if values.rank == 1:
        return ops.reshape(values, [values.shape[0] if at == axis else 1 for at in range(x.rank)])
    block = call.number("block_size", 0)
    require(block > 0 and values.rank == x.rank, "its scale fits no axis and no blocks")
    repeated = ops.repeat_interleave(values, block, axis)
    inside = tuple(slice(int(x.shape[at])) if at == axis else slice(None) for at in range(x.rank))
    return ops.slice_tensor(repeated, inside)


@operator("QuantizeLinear")
def quantize(call: OperatorCall) -> Tensor:
    """Floats over a scale, rounded to even, moved by a zero point, and cut to their type."""
    x, scale, zero = call.x(0), call.x(1), call.maybe(2)
    code = call.number("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(code) if code else DType.uint8
    wide = x if x.dtype is DType.float32 else ops.cast(x, DType.float32)
    units = wide / ops.cast(_spread(call, scale, x), DType.float32)
    if dtype.is_float():
        return _narrow(units, dtype, saturates=call.flag("saturate", 1))
    return requantized(units, None if zero is None else _spread(call, zero, x), dtype)


def _narrow(units: Tensor, dtype: DType, *, saturates: bool) -> Tensor:
    if saturates:
        largest = float(ml_dtypes.finfo(dtype.to_numpy()).max)  # type: ignore[no-untyped-call]
        units = ops.clamp(units, -largest, largest)
    return ops.cast(units, dtype)


def requantized(units: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    """Floats rounded to even, moved by a zero point, and cut to a type of whole numbers."""
    limits = np.iinfo(dtype.to_numpy())
    moved = ops.round(units)
    moved = moved if zero is None else moved + ops.cast(zero, moved.dtype)
    return ops.cast(ops.clamp(moved, float(limits.min), float(limits.max)), dtype)


@operator("DequantizeLinear")
def dequantize(call: OperatorCall) -> Tensor:
    """Whole numbers less a zero point, times a scale."""
    x, scale, zero = call.x(0), call.x(1), call.maybe(2)
    code = call.number("output_dtype", 0)
    dtype = dtype_of(code) if code else scale.dtype
    factor = ops.cast(_spread(call, scale, x), DType.float32)
    centred = ops.cast(_centred(x, None if zero is None else _spread(call, zero, x)), DType.float32)
    return ops.cast(centred * factor, dtype)


def _centred(x: Tensor, zero: Tensor | None) -> Tensor:
    """Numbers less their zero point: whole ones in int32."""
    if x.dtype.is_float():
        return x
    wide = ops.cast(x, DType.int32)
    return wide if zero is None else wide - ops.cast(zero, DType.int32)


def _of_rows(zero: Tensor | None) -> Tensor | None:
    """A zero point of each row as a column."""
    return ops.unsqueeze(zero, -1) if zero is not None and zero.rank == 1 else zero


@operator("MatMulInteger")
def matmul_integer(call: OperatorCall) -> Tensor:
    """The product of matrices of bytes, less their zero points, in int32."""
    left = _centred(call.x(0), _of_rows(call.maybe(2)))
    return ops.matmul(left, _centred(call.x(1), call.maybe(3)))


@operator("QLinearMatMul")
def qlinear_matmul(call: OperatorCall) -> Tensor:
    """A product of quantized matrices, quantized."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call.x(i) for i in range(8))
    product = ops.matmul(_centred(a, _of_rows(a_zero)), _centred(b, b_zero))
    wide = [ops.cast(one, DType.float32) for one in (a_scale, b_scale, y_scale)]
    rows = ops.unsqueeze(wide[0], -1) if wide[0].rank == 1 else wide[0]
    units = ops.cast(product, DType.float32) * (rows * wide[1] / wide[2])
    return requantized(units, y_zero, y_zero.dtype)


def _convolved(call: OperatorCall, x: Tensor, weight: Tensor) -> Tensor:
    """A convolution of whole numbers, in floats that hold its sums exactly."""
    require(weight.shape.is_static, "the filter's sizes are not known")
    terms = int(np.prod(weight.shape.static()[1:]))
    wide = DType.float32 if terms <= EXACT_TERMS else DType.float64
    return convolved(call, ops.cast(x, wide), ops.cast(weight, wide), None)


def _of_features(values: Tensor | None, rank: int) -> Tensor | None:
    """A number for each filter as it broadcasts with ``[features, ...]``."""
    if values is None or values.rank == 0:
        return values
    return ops.reshape(values, [values.shape[0], *[1] * (rank - 1)])


@operator("ConvInteger")
def conv_integer(call: OperatorCall) -> Tensor:
    """A convolution of bytes, less their zero points, in int32."""
    x, weight = call.x(0), call.x(1)
    zero = call.maybe(2)
    centred = _centred(x, None if zero is None else ops.reshape(zero, []))
    filters = _centred(weight, _of_features(call.maybe(3), weight.rank))
    return ops.cast(_convolved(call, centred, filters), DType.int32)


@operator("QLinearConv")
def qlinear_conv(call: OperatorCall) -> Tensor:
    """A convolution of quantized images and filters, quantized."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call.x(i) for i in range(8))
    filters = _centred(w, _of_features(w_zero, w.rank))
    sums = _convolved(call, _centred(x, ops.reshape(x_zero, [])), filters)
    column = [-1, *[1] * (x.rank - 2)]
    if (bias := call.maybe(8)) is not None:
        sums = sums + ops.cast(ops.reshape(bias, column), sums.dtype)
    scale = w_scale if w_scale.rank == 0 else ops.reshape(w_scale, column)
    units = ops.cast(sums, DType.float32) * (x_scale * scale / y_scale)
    return requantized(units, ops.reshape(y_zero, []), y_zero.dtype)
