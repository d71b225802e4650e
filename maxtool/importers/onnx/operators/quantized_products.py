"""Products of quantized matrices with what onnxruntime's optimizer joins to them."""

from __future__ import annotations

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.operators.byte_products import multiplied
from maxtool.importers.onnx.operators.quantizing import requantized
from maxtool.importers.onnx.values import known


def _less_zero(x: Tensor, zero: Tensor | None) -> Tensor:
    """Whole numbers less their zero points, one of all or of each column, in int32."""
    wide = ops.cast(x, DType.int32)
    return wide if zero is None else wide - _of_columns(ops.cast(zero, DType.int32))


def _of_columns(values: Tensor) -> Tensor:
    """One number as a scalar; those of columns as they are."""
    return ops.reshape(values, []) if values.shape.volume() == 1 else values


@operator("QGemm", domain=MICROSOFT)
def quantized_gemm(call: OperatorCall) -> Tensor:
    """``alpha * a @ b + c`` of quantized matrices; floats where no scale of the result is given."""
    call.only("alpha transA transB", 9)
    turned = call.flag("transB")
    sums = None
    if not call.flag("transA"):
        sums = multiplied(call, call.x(0), call.x(2), call.x(3), call.x(5), transposed=turned)
    if sums is None:
        a = _less_zero(call.x(0), call.x(2))
        a = ops.transpose(a, 0, 1) if call.flag("transA") else a
        b = ops.cast(call.x(3), DType.int32)
        b = ops.transpose(b, 0, 1) if turned else b
        sums = ops.matmul(a, _less_zero(b, call.x(5)))
    sums = sums if (more := call.maybe(6)) is None else sums + more
    scale = call.x(1) * _of_columns(call.x(4)) * call.real("alpha", 1.0)
    units = ops.cast(sums, DType.float32) * scale
    if not call.has(7):
        return units
    zero = call.x(8)
    return requantized(units / _of_columns(call.x(7)), _of_columns(zero), zero.dtype)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_to_float(call: OperatorCall) -> Tensor:
    """A product of quantized matrices as floats, and a bias."""
    call.only("", 7)
    sums = multiplied(call, call.x(0), call.maybe(4), call.x(1), call.maybe(5))
    if sums is None:
        left, right = _less_zero(call.x(0), call.maybe(4)), _less_zero(call.x(1), call.maybe(5))
        sums = ops.matmul(left, right)
    scale = _of_columns(call.x(2)) * _of_columns(call.x(3))
    result = ops.cast(sums, DType.float32) * scale
    return result if (bias := call.maybe(6)) is None else result + bias


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(call: OperatorCall) -> Tensor:
    """A product of floats, quantized to uint8 by their range, with a quantized matrix."""
    call.only("", 5)
    levels, scale = levels_by_range(call.x(0))
    sums = ops.matmul(levels, _less_zero(call.x(1), call.maybe(3)))
    result = ops.cast(sums, DType.float32) * (scale * _of_columns(call.x(2)))
    return result if (bias := call.maybe(4)) is None else result + bias


def levels_by_range(x: Tensor) -> tuple[Tensor, Tensor]:
    """Floats as int32 levels less their zero point, and the scale, as DynamicQuantizeLinear."""
    axes = list(range(x.rank))
    low = ops.minimum(ops.reshape(ops.min(x, axis=axes), []), 0.0)
    high = ops.maximum(ops.reshape(ops.max(x, axis=axes), []), 0.0)
    span = (high - low) / 255.0
    scale = ops.where(ops.equal(span, 0.0), known(np.float32(1)), span)
    zero = ops.round(ops.clamp(-low / scale, 0.0, 255.0))
    return ops.cast(ops.clamp(ops.round(x / scale) + zero, 0.0, 255.0) - zero, DType.int32), scale
