"""``Conv``, and products with weights: of bytes where floats are made of such, else of floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.byte_products import (
    convolution_sums,
    product_sums,
    scaled,
    signed,
    whole_bias,
)
from maxtool.importers.onnx.operators.convolving import convolved
from maxtool.importers.onnx.operators.dense import gemm_of_floats, product
from maxtool.importers.onnx.origins import Part


@operator("Conv")
def conv(call: OperatorCall) -> Tensor:
    """A convolution, channels first."""
    result = _convolved_bytes(call)
    return convolved(call, call.x(0), call.x(1), call.maybe(2)) if result is None else result


@operator("MatMul")
def matmul(call: OperatorCall) -> Tensor:
    """The product of matrices; dimensions before the last two broadcast."""
    result = _multiplied_bytes(call, None)
    return product(call.x(0), call.x(1)) if result is None else result


@operator("Gemm")
def gemm(call: OperatorCall) -> Tensor:
    """``alpha * a @ b + beta * c``, of matrices that may be transposed."""
    plain = call.real("alpha", 1.0) == call.real("beta", 1.0) == 1.0 and not call.flag("transA")
    result = _multiplied_bytes(call, call.maybe(2)) if plain else None
    return gemm_of_floats(call) if result is None else result


def _parts(call: OperatorCall) -> tuple[Part, Part] | None:
    """The bytes that the first two inputs are made of."""
    x, weight = call.origins.of(call.x(0)), call.origins.of(call.x(1))
    if x is None or weight is None or (bytes_ := x.plain) is None:
        return None
    if len(weight.parts) > 1 or weight.offset is not None or weight.positive:
        return None
    return bytes_, weight.parts[0]


def _convolved_bytes(call: OperatorCall) -> Tensor | None:
    parts = _parts(call)
    if parts is None:
        return None
    x, weight = parts
    filters = signed(weight.numbers, weight.zero)
    scale = _of_features(x, weight, 0)
    if filters is None or scale is None:
        return None
    features, bias = int(filters.shape[0]), call.maybe(2)
    whole = whole_bias(call, bias, scale, features)
    sums = convolution_sums(call, x.numbers, int(x.zero), filters, whole)
    if sums is None:
        return None
    column = [-1, *[1] * (sums.rank - 2)]
    factors = scale if scale.ndim == 0 else scale.reshape(column)
    left = None if bias is None or whole is not None else ops.reshape(bias, column)
    return scaled(call, sums, factors, left)


def _multiplied_bytes(call: OperatorCall, bias: Tensor | None) -> Tensor | None:
    parts = _parts(call)
    if parts is None:
        return None
    x, weight = parts
    turned = call.op_type == "Gemm" and call.flag("transB")
    matrix = signed(weight.numbers, weight.zero)
    if matrix is None or matrix.rank != 2:
        return None
    axis = 0 if turned else 1
    scale = _of_features(x, weight, axis)
    if scale is None:
        return None
    whole = whole_bias(call, bias, scale, int(matrix.shape[axis]))
    sums = product_sums(x.numbers, int(x.zero), matrix, whole, transposed=turned)
    return None if sums is None else scaled(call, sums, scale, None if whole is not None else bias)


def _of_features(x: Part, weight: Part, axis: int) -> NDArray[np.float32] | None:
    """The scales of sums: one, or one for each feature, which is a dimension of the weight."""
    scale = weight.scale
    if scale.size == 1:
        return np.asarray(x.scale * scale.reshape(()), np.float32)
    shape = [1] * weight.numbers.rank
    shape[axis] = int(weight.numbers.shape[axis])
    if list(scale.shape) != shape:
        return None
    return np.asarray(x.scale * scale.reshape(-1), np.float32)
