"""What each elementwise operation does to one element."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, TypeAlias

from tvm import tirx

from maxtool.compiler.kernels.ordering import maximum, minimum

Expr: TypeAlias = Any  # tvm ships no types

SQRT_HALF = sqrt(0.5)
SQRT_2_OVER_PI = sqrt(2 / pi)


def _constant(value: float, like: Expr) -> Expr:
    return tirx.const(value, str(like.ty))


def _zero(like: Expr) -> Expr:
    return _constant(0, like)


def _is_float(x: Expr) -> bool:
    return "float" in str(x.ty)


def _libm(name: str) -> Callable[..., Expr]:
    """A function of the C library, where TVM has none or its own is less exact."""

    def call(*operands: Expr) -> Expr:
        kind = str(operands[0].ty)
        return tirx.call_pure_extern(kind, name + ("f" if kind == "float32" else ""), *operands)

    return call


_tanh, _fmod = _libm("tanh"), _libm("fmod")


def _of_floats(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """What leaves whole numbers as they are."""
    return lambda x: function(x) if _is_float(x) else x


def _negative(x: Expr) -> Expr:
    """``-0.0 - x`` for floats, so that the negative of 0.0 is -0.0."""
    if str(x.ty).startswith("u"):  # TVM takes 0 - x to be 0
        return tirx.bitwise_not(x) + _constant(1, x)
    return _constant(-0.0 if _is_float(x) else 0, x) - x


def _gelu(x: Expr) -> Expr:
    half, one = _constant(0.5, x), _constant(1.0, x)
    return half * x * (one + tirx.erf(x * _constant(SQRT_HALF, x)))


def _gelu_tanh(x: Expr) -> Expr:
    """By ``(1 + tanh(u)) / 2 == sigmoid(2 u)``, which loses no digits where the tangent is -1."""
    inner = x * (_constant(1, x) + _constant(0.044715, x) * x * x)
    return x * tirx.sigmoid(_constant(2 * SQRT_2_OVER_PI, x) * inner)


def _gelu_quick(x: Expr) -> Expr:
    return x * tirx.sigmoid(_constant(1.702, x) * x)


def _divisor(y: Expr) -> Expr:
    """``y``, or 1 where the processor would stop: at 0, and at -1, which may overflow."""
    special = tirx.EQ(y, _zero(y))
    if not str(y.ty).startswith("u"):
        special = tirx.any(special, tirx.EQ(y, _constant(-1, y)))
    return tirx.Select(special, _constant(1, y), y)


def _whole_quotient(x: Expr, y: Expr) -> Expr:
    quotient = tirx.floordiv(x, _divisor(y))
    if not str(y.ty).startswith("u"):
        quotient = tirx.Select(tirx.EQ(y, _constant(-1, y)), _zero(x) - x, quotient)
    return tirx.Select(tirx.EQ(y, _zero(y)), _zero(x), quotient)


def _whole_remainder(x: Expr, y: Expr) -> Expr:
    divisor = _divisor(y)
    return tirx.Select(tirx.EQ(divisor, y), tirx.floormod(x, divisor), _zero(x))


def _is_astray(left: Expr, y: Expr) -> Expr:
    """Whether what C's fmod leaves has not the sign of the divisor."""
    zero = _zero(y)
    return tirx.any(tirx.all(left < zero, y > zero), tirx.all(left > zero, y < zero))


def _remainder(x: Expr, y: Expr) -> Expr:
    """As Python's ``%``: with the sign of ``y``."""
    if not _is_float(x):
        return _whole_remainder(x, y)
    left, zero = _fmod(x, y), _zero(x)
    moved = tirx.Select(_is_astray(left, y), left + y, left)
    return tirx.Select(tirx.EQ(left, zero), tirx.copysign(zero, y), moved)


def _quotient(x: Expr, y: Expr) -> Expr:
    """As Python's ``//``: exact, for what is divided is a multiple; ``x / y`` by 0."""
    if not _is_float(x):
        return _whole_quotient(x, y)
    zero, half, one = (_constant(number, x) for number in (0, 0.5, 1))
    left = _fmod(x, y)
    exact = (x - left) / y - tirx.Select(_is_astray(left, y), one, zero)
    down = tirx.floor(exact)
    nearest = tirx.Select(exact - down > half, down + one, down)
    signed = tirx.Select(tirx.EQ(exact, zero), tirx.copysign(zero, x / y), nearest)
    return tirx.Select(tirx.EQ(y, zero), x / y, signed)


def _not_equal(x: Expr, y: Expr) -> Expr:
    """Not ``x != y``, which LLVM is told to take as false where either is NaN."""
    if not _is_float(x):
        return tirx.NE(x, y)
    return tirx.any(x < y, y < x, tirx.isnan(x), tirx.isnan(y))


def _whole(x: Expr) -> Expr:
    """A bool as 0 or 1, by which TVM can compare it; a number as it is."""
    return x.astype("int8") if str(x.ty) == "bool" else x


def _comparing(function: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    return lambda x, y: function(_whole(x), _whole(y))


SCALAR: dict[str, Callable[..., Expr]] = {
    "abs": tirx.abs,
    "acos": _libm("acos"),
    "add": lambda x, y: x + y,
    "atanh": _libm("atanh"),
    "ceil": _of_floats(tirx.ceil),
    "cos": _libm("cos"),
    "div": lambda x, y: x / y,
    "equal": _comparing(tirx.EQ),
    "erf": tirx.erf,
    "exp": tirx.exp,
    "floor": _of_floats(tirx.floor),
    "floordiv": _quotient,
    "gelu": _gelu,
    "gelu_quick": _gelu_quick,
    "gelu_tanh": _gelu_tanh,
    "greater": _comparing(lambda x, y: y < x),
    "greater_equal": _comparing(lambda x, y: y <= x),
    "is_inf": lambda x: tirx.EQ(tirx.abs(x), _constant(float("inf"), x)),
    "is_nan": tirx.isnan,
    "less": _comparing(lambda x, y: x < y),
    "less_equal": _comparing(lambda x, y: x <= y),
    "log": tirx.log,
    "log1p": _libm("log1p"),
    "logical_and": tirx.all,
    "logical_not": lambda x: tirx.EQ(_whole(x), tirx.const(0, "int8")),
    "logical_or": tirx.any,
    "logical_xor": _comparing(tirx.NE),
    "maximum": maximum,
    "minimum": minimum,
    "mod": _remainder,
    "mul": lambda x, y: x * y,
    "negative": _negative,
    "not_equal": _comparing(_not_equal),
    "pow": _libm("pow"),
    "relu": lambda x: tirx.Select(x < _zero(x), _zero(x), x),
    "round": _of_floats(tirx.nearbyint),
    "rsqrt": tirx.rsqrt,
    "sigmoid": tirx.sigmoid,
    "silu": lambda x: x * tirx.sigmoid(x),
    "sin": _libm("sin"),
    "sqrt": tirx.sqrt,
    "sub": lambda x, y: x - y,
    "tanh": _tanh,
    "trunc": _of_floats(tirx.trunc),
}
