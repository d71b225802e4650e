"""Operators between floats and whole numbers with a scale, and products of such numbers."""

from __future__ import annotations

from functools import reduce
from math import prod

import ml_dtypes
import numpy as np

from maxtool.dtype import BYTES, DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in, dtype_of
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.byte_products import (
    convolution_sums,
    known_points,
    multiplied,
    multiplied_later,
    signed,
)
from maxtool.importers.onnx.operators.convolving import convolved
from maxtool.importers.onnx.origins import Origin, Part, elements
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

EXACT_TERMS = 1 << 8
"""Products of bytes less zero points, of 9 bits each, that float32 adds up exactly."""

EXACT = (DType.int8, DType.uint8, DType.int16, DType.uint16)
"""Types whose numbers, and differences of them, float32 has."""


def _spread(call: OperatorCall, values: Tensor, x: Tensor) -> Tensor:
    """Scales or zero points, of all elements, of an axis or of blocks, as they broadcast."""
    if values.rank == 0 or (values.rank == 1 and values.shape[0] == 1):
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
    origin, unit = call.origins.of(x), elements(scale)
    positive = unit is not None and unit.size == 1 and bool(unit > 0)
    if unit is not None and positive and dtype in BYTES and _is_known(zero):
        return _quantized(call, origin, float(unit.reshape(())), dtype)
    units = _units(call, x, scale)
    if dtype.is_float():
        return _narrow(units, dtype, saturates=call.flag("saturate", 1))
    return requantized(units, None if zero is None else _spread(call, zero, x), dtype)


def _is_known(zero: Tensor | None) -> bool:
    return zero is None or ((values := elements(zero)) is not None and values.size == 1)


def _units(call: OperatorCall, x: Tensor, scale: Tensor) -> Tensor:
    wide = x if x.dtype is DType.float32 else ops.cast(x, DType.float32)
    return wide / ops.cast(_spread(call, scale, x), DType.float32)


def _quantized(call: OperatorCall, origin: Origin | None, unit: float, dtype: DType) -> Tensor:
    """Bytes of one scale and one zero point; of int8 those of uint8 are remembered."""
    if origin is None:
        units = _units(call, call.x(0), call.x(1))
    else:
        values = elements(call.maybe(2))
        lowest = np.iinfo(dtype.to_numpy()).min
        start = 0 if values is None else int(values.reshape(()))
        units = origin.over(unit, cut=start == lowest)
    return rounded_to_bytes(call, units, call.maybe(2), dtype)


def rounded_to_bytes(
    call: OperatorCall, units: Tensor, zero: Tensor | None, dtype: DType
) -> Tensor:
    """Floats rounded to bytes with one zero point; of int8 those of uint8 are remembered."""
    values = elements(zero)
    if zero is not None and (values is None or dtype not in BYTES):
        return requantized(units, ops.reshape(zero, []), dtype)
    shift = 128 if dtype is DType.int8 else 0
    start = shift + (0 if values is None else int(values.reshape(())))
    place = known(np.array(start, np.uint8)) if start else None
    unsigned = requantized(units, place, DType.uint8)
    if dtype is DType.uint8:
        return unsigned
    signed_ = ops.cast(ops.cast(unsigned, DType.int32) - shift, DType.int8)
    return call.origins.note_unsigned(signed_, unsigned)


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
    part = _part(call) if dtype is DType.float32 else None
    if part is not None and part.numbers.dtype in BYTES:
        return call.origins.note(part.over(1.0), Origin((part,)))
    factor = ops.cast(_spread(call, scale, x), DType.float32)
    if x.dtype in EXACT:
        place = None if zero is None else ops.cast(_spread(call, zero, x), DType.float32)
        wide = ops.cast(x, DType.float32)
        centred = wide if place is None else wide - place
    else:
        spread = None if zero is None else _spread(call, zero, x)
        centred = ops.cast(_centred(x, spread), DType.float32)
    result = ops.cast(centred * factor, dtype)
    return result if part is None else call.origins.note(result, Origin((part,)))


def _part(call: OperatorCall) -> Part | None:
    """Return the part that a node dequantizes, if it is of bytes or sums and its scale is known."""
    x, scale, zero = call.x(0), elements(call.x(1)), elements(call.maybe(2))
    blocked = call.number("block_size", 0) > 0
    if x.dtype not in (*BYTES, DType.int32) or scale is None or blocked:
        return None
    if (call.has(2) and zero is None) or scale.dtype != np.float32:
        return None
    place = np.zeros((), np.int32) if zero is None else zero
    if x.dtype is DType.int32 and place.any():  # float32 may not have what is taken off
        return None
    spread = [_spread(call, known(one), x).to_numpy() for one in (place, scale)]
    numbers, start = call.origins.levels(x, spread[0])
    return Part(numbers, start, spread[1])


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
    return _product(call, call.x(0), call.maybe(2), call.x(1), call.maybe(3))


def _product(
    call: OperatorCall, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None
) -> Tensor:
    found = multiplied(call, a, a_zero, b, b_zero)
    if found is None and a_zero is not None:
        found = multiplied_later(call, a, a_zero, b, b_zero)
    if found is not None:
        return found
    both = _centred(a, _of_rows(a_zero)), _centred(b, b_zero)
    terms = a.shape[-1]
    if terms.is_static and int(terms) <= EXACT_TERMS:
        product = ops.matmul(*(ops.cast(each, DType.float32) for each in both))
        return ops.cast(product, DType.int32)
    return ops.matmul(*both)


@operator("QLinearMatMul")
def qlinear_matmul(call: OperatorCall) -> Tensor:
    """A product of quantized matrices, quantized."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call.x(i) for i in range(8))
    product = _product(call, a, a_zero, b, b_zero)
    wide = [ops.cast(one, DType.float32) for one in (a_scale, b_scale, y_scale)]
    rows = ops.unsqueeze(wide[0], -1) if wide[0].rank == 1 else wide[0]
    units = ops.cast(product, DType.float32) * (rows * wide[1] / wide[2])
    if y_zero.rank == 0:
        return rounded_to_bytes(call, units, y_zero, y_zero.dtype)
    return requantized(units, y_zero, y_zero.dtype)


def _convolved(call: OperatorCall, x: Tensor, weight: Tensor) -> Tensor:
    """A convolution of whole numbers in int32, by floats that hold its sums exactly.

    Where float32 holds those of some channels only, it is the sum of several.
    """
    require(weight.shape.is_static, "the filter's sizes are not known")
    _, channels, *window = weight.shape.static()
    together = EXACT_TERMS // max(prod(window), 1)
    if channels > together and (together == 0 or call.number("group", 1) > 1):
        wide = [ops.cast(each, DType.float64) for each in (x, weight)]
        return ops.cast(convolved(call, wide[0], wide[1], None), DType.int32)
    wide = [ops.cast(each, DType.float32) for each in (x, weight)]
    if channels <= together:
        return _exact(call, *wide)
    parts = []
    for first in range(0, channels, together):
        image, filters = (each[:, first : first + together] for each in wide)
        parts.append(_exact(call, image, filters))
    return reduce(ops.add, parts)


def _exact(call: OperatorCall, x: Tensor, weight: Tensor) -> Tensor:
    """A convolution of whole numbers in float32, which holds its sums, in int32."""
    return ops.cast(convolved(call, x, weight, None, ops.exact_convolution), DType.int32)


def _filters(weight: Tensor, zero: Tensor | None) -> Tensor:
    """Filters less their zero points, known numbers if these are."""
    numbers, start = elements(weight), elements(zero)
    if numbers is None or numbers.dtype.kind not in "iu" or (zero is not None and start is None):
        return _centred(weight, _of_features(zero, weight.rank))
    wide = numbers.astype(np.int32)
    if start is None:
        return known(wide)
    return known(wide - start.astype(np.int32).reshape(-1, *[1] * (weight.rank - 1)))


def _sums(call: OperatorCall, second: int, bias: Tensor | None = None) -> Tensor:
    """The sums of a convolution of bytes in int32, whose filter is the input of that number."""
    x, weight = call.x(0), call.x(second)
    zero, start = call.maybe(2), call.maybe(second + 2)
    points = known_points(call, x, zero, start)
    if points is not None:
        place, starts = points
        spread = starts.reshape(-1, *[1] * (weight.rank - 1)) if starts.ndim else starts
        filters = signed(weight, spread)
        if filters is not None:
            numbers, point = call.origins.levels(x, place)
            found = convolution_sums(call, numbers, int(point), filters, bias)
            if found is not None:
                return found
    centred = _centred(x, None if zero is None else ops.reshape(zero, []))
    sums = _convolved(call, centred, _filters(weight, start))
    return sums if bias is None else sums + ops.reshape(bias, [-1, *[1] * (x.rank - 2)])


def _of_features(values: Tensor | None, rank: int) -> Tensor | None:
    """A number for each filter as it broadcasts with ``[features, ...]``."""
    if values is None or values.rank == 0:
        return values
    return ops.reshape(values, [values.shape[0], *[1] * (rank - 1)])


@operator("ConvInteger")
def conv_integer(call: OperatorCall) -> Tensor:
    """A convolution of bytes, less their zero points, in int32."""
    return _sums(call, 1)


@operator("QLinearConv")
def qlinear_conv(call: OperatorCall) -> Tensor:
    """A convolution of quantized images and filters, quantized."""
    x, x_scale, _, _, w_scale, _, y_scale, y_zero = (call.x(i) for i in range(8))
    sums = _sums(call, 3, call.maybe(8))
    scale = w_scale if w_scale.rank == 0 else ops.reshape(w_scale, [-1, *[1] * (x.rank - 2)])
    units = ops.cast(sums, DType.float32) * (x_scale * scale / y_scale)
    return rounded_to_bytes(call, units, y_zero, y_zero.dtype)
