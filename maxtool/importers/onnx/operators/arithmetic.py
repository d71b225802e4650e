"""Operators on single elements: arithmetic, activations, comparisons, logic and casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import ml_dtypes

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require

UNARY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Abs": ops.abs,
    "Acos": ops.acos,
    "Asin": ops.asin,
    "Atan": ops.atan,
    "Atanh": ops.atanh,
    "BitwiseNot": ops.bitwise_not,
    "Ceil": ops.ceil,
    "Cos": ops.cos,
    "Erf": ops.erf,
    "Exp": ops.exp,
    "Floor": ops.floor,
    "IsNaN": ops.is_nan,
    "Log": ops.log,
    "Neg": ops.negative,
    "Not": ops.logical_not,
    "Relu": ops.relu,
    "Round": ops.round,
    "Sigmoid": ops.sigmoid,
    "Sin": ops.sin,
    "Softplus": ops.softplus,
    "Sqrt": ops.sqrt,
    "Tanh": ops.tanh,
    "Reciprocal": lambda x: 1.0 / x,
    "Softsign": lambda x: x / (ops.abs(x) + 1.0),
    "HardSwish": ops.hard_swish,
    "Mish": lambda x: x * ops.tanh(ops.softplus(x)),
    "Cosh": lambda x: (ops.exp(x) + ops.exp(-x)) * 0.5,
    "Tan": lambda x: ops.sin(x) / ops.cos(x),
}
"""Operators with one operand and no attribute."""

BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": ops.add,
    "And": ops.logical_and,
    "Equal": ops.equal,
    "Greater": ops.greater,
    "GreaterOrEqual": ops.greater_equal,
    "Less": ops.less,
    "LessOrEqual": ops.less_equal,
    "Mul": ops.mul,
    "Or": ops.logical_or,
    "Sub": ops.sub,
    "Xor": ops.logical_xor,
}
"""Operators with two operands and no attribute."""

OLD_BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    **BINARY,
    "Div": ops.div,
    "Pow": ops.pow,
}
"""Operators with two operands, of one type, until opset 7."""

FACTORS = {1.0: 1, 2.0: 2, 3.0: 3}
"""Powers that are products of so many factors."""

BITWISE: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "BitwiseAnd": ops.bitwise_and,
    "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor,
}
UNSIGNED = {
    DType.int8: DType.uint8,
    DType.int16: DType.uint16,
    DType.int32: DType.uint32,
    DType.int64: DType.uint64,
}
SHIFTS = {"LEFT": ops.shift_left, "RIGHT": ops.shift_right}

FOLDED: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Max": ops.maximum,
    "Min": ops.minimum,
    "Sum": ops.add,
}
"""Operators with one operand or more."""


@operator(*UNARY)
def unary(call: OperatorCall) -> Tensor:
    """Apply one of ``UNARY``."""
    return UNARY[call.op_type](call.x())


@operator(*BINARY, since=7)
def binary(call: OperatorCall) -> Tensor:
    """Apply one of ``BINARY``."""
    return BINARY[call.op_type](call.x(0), call.x(1))


@operator(*OLD_BINARY, since=1)
def binary_by_axis(call: OperatorCall) -> Tensor:
    """Apply one of ``BINARY``; until opset 7 the second operand's place is an attribute."""
    left, right = call.x(0), call.x(1)
    if call.flag("broadcast") and "axis" in call.attributes:
        axis = call.axis(left.rank)
        more = left.rank - axis - right.rank
        require(more >= 0, "the second operand does not fit from the axis on")
        right = ops.reshape(right, [*right.shape, *[1] * more])
    return OLD_BINARY[call.op_type](left, right)


@operator(*FOLDED)
def folded(call: OperatorCall) -> Tensor:
    """Apply one of ``FOLDED``."""
    return reduce(FOLDED[call.op_type], call.tensors())


@operator("Mean")
def mean(call: OperatorCall) -> Tensor:
    """The mean of the operands."""
    return reduce(ops.add, call.tensors()) / float(len(call.operands))


@operator("Div", since=7)
def divide(call: OperatorCall) -> Tensor:
    """A quotient; that of whole numbers is rounded towards 0."""
    left, right = call.x(0), call.x(1)
    if left.dtype.is_float():
        return ops.div(left, right)
    if is_unsigned(left.dtype):
        return ops.floordiv(left, right)
    floor = ops.floordiv(left, right)
    differ = ops.not_equal(ops.less(left, 0), ops.less(right, 0))
    inexact = ops.not_equal(floor * right, left)
    return floor + ops.cast(ops.logical_and(differ, inexact), left.dtype)


@operator("Mod")
def modulo(call: OperatorCall) -> Tensor:
    """A remainder with the sign of the divisor or, with ``fmod``, of the dividend."""
    left, right = call.x(0), call.x(1)
    if not call.flag("fmod"):
        return ops.mod(left, right)
    if left.dtype.is_float():
        rest = ops.mod(ops.abs(left), ops.abs(right))
        return ops.where(ops.less(left, 0), -rest, rest)
    rest = ops.mod(left, right)
    if is_unsigned(left.dtype):
        return rest
    # The least number has no absolute value in its type.
    differ = ops.not_equal(ops.less(left, 0), ops.less(right, 0))
    return ops.where(ops.logical_and(differ, ops.not_equal(rest, 0)), rest - right, rest)


def is_unsigned(dtype: DType) -> bool:
    """Return whether a type has no negative numbers."""
    return dtype.value.startswith("uint")


@operator("Pow", since=7)
def power(call: OperatorCall) -> Tensor:
    """A power, in the type of the base."""
    base, exponent = call.x(0), call.x(1)
    if base.dtype.is_float() and exponent.rank == 0 and not call.unknown(1):
        factors = FACTORS.get(float(call.known(1)))
        if factors is not None:
            return reduce(ops.mul, [base] * factors)
    if base.dtype is exponent.dtype:
        return ops.pow(base, exponent)
    if base.dtype.is_float() or exponent.dtype.is_integral():
        return ops.pow(base, ops.cast(exponent, base.dtype))
    return ops.cast(ops.pow(ops.cast(base, exponent.dtype), exponent), base.dtype)


@operator("Sign")
def sign(call: OperatorCall) -> Tensor:
    """-1, 0 or 1."""
    x = call.x()
    positive = ops.cast(ops.greater(x, 0), x.dtype)
    return positive if is_unsigned(x.dtype) else positive - ops.cast(ops.less(x, 0), x.dtype)


@operator("Sinh")
def sinh(call: OperatorCall) -> Tensor:
    """The hyperbolic sine: near 0, by its quotient with the hyperbolic tangent's."""
    x = call.x()
    tanh = ops.tanh(x)
    near = tanh / ops.sqrt(1.0 - tanh * tanh)
    return ops.where(ops.less(ops.abs(x), 1.0), near, (ops.exp(x) - ops.exp(-x)) * 0.5)


@operator("Asinh")
def asinh(call: OperatorCall) -> Tensor:
    """The number whose hyperbolic sine this is."""
    x = call.x()
    size = ops.abs(x)
    square = size * size
    value = ops.log1p(size + square / (ops.sqrt(square + 1.0) + 1.0))
    return ops.where(ops.less(x, 0.0), -value, value)


@operator("Acosh")
def acosh(call: OperatorCall) -> Tensor:
    """The number from 0 on whose hyperbolic cosine this is."""
    above = call.x() - 1.0
    return ops.log1p(above + ops.sqrt(above * (above + 2.0)))


@operator("Clip", since=1)
def clip_by_attributes(call: OperatorCall) -> Tensor:
    """Limits as attributes."""
    x = call.x()
    if "min" in call.attributes:
        x = ops.maximum(x, call.real("min"))
    return ops.minimum(x, call.real("max")) if "max" in call.attributes else x


@operator("Clip", since=11)
def clip(call: OperatorCall) -> Tensor:
    """Limits as operands: at least the first, then at most the second."""
    x, low, high = call.x(0), call.maybe(1), call.maybe(2)
    x = x if low is None else ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


@operator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(call: OperatorCall) -> Tensor:
    """The bits of two whole numbers combined."""
    return BITWISE[call.op_type](call.x(0), call.x(1))


@operator("BitShift")
def shift(call: OperatorCall) -> Tensor:
    """Bits moved to higher or lower places; from below the lowest, copies of the sign come in.

    A negative count of places is one beyond the width.
    """
    direction = call.text("direction")
    require(direction in SHIFTS, f"there is no direction {direction!r}")
    x, places, move = call.x(0), call.x(1), SHIFTS[direction]
    if x.dtype not in UNSIGNED:
        return move(x, places)
    bits = ops.bitcast(x, UNSIGNED[x.dtype])
    sign = ops.cast(ops.less(x, 0), x.dtype) * -1 if direction == "RIGHT" else x * 0
    copies = ops.bitcast(sign, bits.dtype)
    moved = move(ops.bitwise_xor(bits, copies), ops.bitcast(places, bits.dtype))
    return ops.bitcast(ops.bitwise_xor(moved, copies), x.dtype)


@operator("BitCast")
def bitcast(call: OperatorCall) -> Tensor:
    """The bits of elements as those of another type of the same size."""
    return ops.bitcast(call.x(), call.dtype("to"))


@operator("Elu")
def elu(call: OperatorCall) -> Tensor:
    """Below 0, ``alpha * (exp(x) - 1)``."""
    return _exponential(call.x(), call.real("alpha", 1.0))


def _exponential(x: Tensor, alpha: float) -> Tensor:
    return ops.maximum(x, 0.0) + (ops.exp(ops.minimum(x, 0.0)) - 1.0) * alpha


@operator("Selu")
def selu(call: OperatorCall) -> Tensor:
    """A scaled ``Elu``."""
    alpha, gamma = call.real("alpha", 1.6732632423543772), call.real("gamma", 1.0507009873554805)
    return _exponential(call.x(), alpha) * gamma


@operator("Celu")
def celu(call: OperatorCall) -> Tensor:
    """``max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))``."""
    x, alpha = call.x(), call.real("alpha", 1.0)
    low = ops.minimum((ops.exp(ops.minimum(x / alpha, 0.0)) - 1.0) * alpha, 0.0)
    return ops.maximum(x, 0.0) + low


@operator("LeakyRelu")
def leaky_relu(call: OperatorCall) -> Tensor:
    """Below 0, ``alpha * x``."""
    x, alpha = call.x(), call.real("alpha", 0.01)
    if 0 < alpha <= 1:
        return ops.maximum(x, x * alpha)
    return ops.where(ops.less(x, 0.0), x * alpha, x)


@operator("PRelu")
def prelu(call: OperatorCall) -> Tensor:
    """Below 0, times a slope."""
    x, slope = call.x(0), call.x(1)
    if x.dtype.is_float():
        return ops.relu(x) + ops.minimum(x, 0.0) * slope
    return ops.where(ops.less(x, 0), x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(call: OperatorCall) -> Tensor:
    """0 up to ``alpha``."""
    x = call.x()
    return ops.where(ops.greater(x, call.real("alpha", 1.0)), x, 0.0)


@operator("HardSigmoid")
def hard_sigmoid(call: OperatorCall) -> Tensor:
    """``alpha * x + beta``, between 0 and 1."""
    line = call.x() * call.real("alpha", 0.2) + call.real("beta", 0.5)
    return ops.clamp(line, 0.0, 1.0)


@operator("Shrink")
def shrink(call: OperatorCall) -> Tensor:
    """Nearer to 0 by ``bias``, and 0 where it is nearer than ``lambd``."""
    x, limit, bias = call.x(), call.real("lambd", 0.5), call.real("bias", 0.0)
    wide = x if x.dtype.is_float() else ops.cast(x, DType.float32)
    above = ops.where(ops.greater(wide, limit), wide - bias, 0.0)
    shrunk = ops.where(ops.less(wide, -limit), wide + bias, above)
    return ops.cast(shrunk, x.dtype)


@operator("Gelu")
def gelu(call: OperatorCall) -> Tensor:
    """``x`` times the normal distribution function, exact or by a hyperbolic tangent."""
    return ops.gelu(call.x(), call.text("approximate", "none"))


@operator("Swish")
def swish(call: OperatorCall) -> Tensor:
    """``x * sigmoid(alpha * x)``."""
    x, alpha = call.x(), call.real("alpha", 1.0)
    return ops.silu(x) if alpha == 1.0 else x * ops.sigmoid(x * alpha)


@operator("IsInf")
def is_inf(call: OperatorCall) -> Tensor:
    """Return whether a float is infinite, of the signs that are asked for."""
    x = call.x()
    x = ops.cast(x, DType.float32) if x.dtype.value.startswith("float8") else x
    positive, negative = call.flag("detect_positive", 1), call.flag("detect_negative", 1)
    infinite = ops.is_inf(x)
    if not positive:
        infinite = ops.logical_and(infinite, ops.less(x, 0.0))
    return infinite if negative else ops.logical_and(infinite, ops.greater(x, 0.0))


@operator("Where")
def where(call: OperatorCall) -> Tensor:
    """One of two elements."""
    return ops.where(call.x(0), call.x(1), call.x(2))


@operator("Cast")
def cast(call: OperatorCall) -> Tensor:
    """The elements in another type."""
    return converted(call, call.dtype("to"))


@operator("CastLike")
def cast_like(call: OperatorCall) -> Tensor:
    """The elements in the type of the second operand."""
    return converted(call, call.x(1).dtype)


def converted(call: OperatorCall, dtype: DType) -> Tensor:
    """The first operand in another type; what does not fit an 8-bit float is the largest there."""
    x = call.x()
    if x.dtype is dtype:
        return x
    if not dtype.value.startswith("float8"):
        return ops.cast(x, dtype)
    if not call.flag("saturate", 1):
        return ops.cast(x, dtype)
    require(dtype is not DType.float8_e8m0fnu, "casts to float8_e8m0fnu are not supported")
    largest = float(ml_dtypes.finfo(dtype.to_numpy()).max)  # type: ignore[no-untyped-call]
    wide = x if x.dtype.size_in_bytes > 1 and x.dtype.is_float() else ops.cast(x, DType.float32)
    return ops.cast(ops.clamp(wide, -largest, largest), dtype)
