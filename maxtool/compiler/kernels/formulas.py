"""Formulas of the elementwise operations: one table for CPUs, GPUs and tensor expressions.

A formula computes with the functions that an :class:`Arithmetic` has, and is otherwise the same for
a vector of a CPU's register, for the number of a GPU's thread, and for an element of a tensor
expression, of any type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import pi, sqrt
from typing import TypeAlias

from tvm import tirx

from maxtool.compiler.kernels.element_order import maximum, minimum
from maxtool.compiler.kernels.kernel_builder import Expr, let


class Arithmetic:
    """Numbers of one type, and the functions that differ between targets.

    Here they are single, in a tensor expression or of a GPU's thread; ``Vectors`` are a CPU's. On
    GPUs the functions are CUDA's own, without --use_fast_math: by the table of the CUDA C++
    programming guide (appendix on mathematical functions) expf, tanhf and division are within 2
    units in the last place, erfcf within 4. Values of a kernel can be kept ``in_registers``.
    """

    def __init__(self, dtype: str, *, in_registers: bool = False) -> None:
        self.dtype, self._in_registers = dtype, in_registers

    def number(self, value: float) -> Expr:
        """Return a constant."""
        return tirx.const(value, self.dtype)

    def let(self, value: Expr) -> Expr:
        """Compute a value once; in a tensor expression, where compilers see that it is the same."""
        return let(value) if self._in_registers else value

    def exp(self, x: Expr) -> Expr:
        """Return ``e**x``."""
        return tirx.exp(x)

    def any_exp(self, x: Expr) -> Expr:
        """Return ``e**x`` of any number, infinity where it is too large."""
        return self.exp(x)

    def erf(self, x: Expr) -> Expr:
        """Return the error function."""
        return tirx.erf(x)

    def half_erfc(self, x: Expr) -> Expr:
        """Return ``(1 - erf(x)) / 2``."""
        return self.number(0.5) * library("erfc")(self, x)

    def tanh(self, x: Expr) -> Expr:
        """Return the hyperbolic tangent."""
        return library("tanh")(self, x)


# From an arithmetic and one or two operands to the result.
Formula: TypeAlias = Callable[..., Expr]


def library(name: str) -> Formula:
    """Call a function of the C library, where TVM has none or its own is less exact."""

    def call(m: Arithmetic, *operands: Expr) -> Expr:
        symbol = name + ("f" if m.dtype == "float32" else "")
        return tirx.call_pure_extern(m.dtype, symbol, *operands)

    return call


def _is_float(m: Arithmetic) -> bool:
    return "float" in m.dtype


def _is_unsigned(m: Arithmetic) -> bool:
    return m.dtype.startswith("u")


def _negative(m: Arithmetic, x: Expr) -> Expr:
    """``-0.0 - x`` for floats, so that the negative of 0.0 is -0.0."""
    if _is_unsigned(m):  # TVM takes 0 - x to be 0
        return tirx.bitwise_not(x) + m.number(1)
    return m.number(-0.0 if _is_float(m) else 0) - x


def _relu(m: Arithmetic, x: Expr) -> Expr:
    """``x`` unless it is less than 0, so that NaN stays."""
    zero = m.number(0)
    return tirx.Select(x < zero, zero, x)


def _sigmoid(m: Arithmetic, x: Expr) -> Expr:
    """``1 / (1 + exp(-x))`` from exp(-abs(x)), which cannot overflow."""
    negative, unit = x < m.number(0), m.number(1)
    e = m.let(m.exp(tirx.Select(negative, x, _negative(m, x))))
    return tirx.Select(negative, e, unit) / (unit + e)


def _hard_swish(m: Arithmetic, x: Expr) -> Expr:
    """``x`` times a line from 0 to 1 between -3 and 3, exact where it begins; NaN stays."""
    zero, six = m.number(0), m.number(6)
    line = m.let(x + m.number(3))
    return x * tirx.Select(line < zero, zero, tirx.Select(six < line, six, line)) * m.number(1 / 6)


def _softplus(m: Arithmetic, x: Expr) -> Expr:
    """``log(1 + exp(x))`` as the greater of x and 0, and what exp(-abs(x)) adds to it."""
    negative = x < m.number(0)
    e = m.exp(tirx.Select(negative, x, _negative(m, x)))
    return tirx.Select(negative, m.number(0), x) + library("log1p")(m, e)


def _gelu(m: Arithmetic, x: Expr) -> Expr:
    """``x`` times the normal distribution function, which is ``erfc(-x / sqrt(2)) / 2``."""
    return x * m.half_erfc(m.let(x * m.number(-sqrt(0.5))))


def _gelu_tanh(m: Arithmetic, x: Expr) -> Expr:
    """Compute GELU by ``(1 + tanh(u)) / 2 == sigmoid(2 u)``, exact where the tangent is near -1."""
    inner = x * (m.number(1) + m.number(0.044715) * x * x)
    return x * _sigmoid(m, m.let(m.number(2 * sqrt(2 / pi)) * inner))


def _gelu_quick(m: Arithmetic, x: Expr) -> Expr:
    return x * _sigmoid(m, m.let(m.number(1.702) * x))


def _divisor(m: Arithmetic, y: Expr) -> Expr:
    """``y``, or 1 where the processor would stop: at 0, and at -1, which may overflow."""
    special = tirx.EQ(y, m.number(0))
    if not _is_unsigned(m):
        special = tirx.any(special, tirx.EQ(y, m.number(-1)))
    return tirx.Select(special, m.number(1), y)


def _whole_quotient(m: Arithmetic, x: Expr, y: Expr) -> Expr:
    quotient = tirx.floordiv(x, _divisor(m, y))
    if not _is_unsigned(m):
        quotient = tirx.Select(tirx.EQ(y, m.number(-1)), m.number(0) - x, quotient)
    return tirx.Select(tirx.EQ(y, m.number(0)), m.number(0), quotient)


def _whole_remainder(m: Arithmetic, x: Expr, y: Expr) -> Expr:
    divisor = _divisor(m, y)
    return tirx.Select(tirx.EQ(divisor, y), tirx.floormod(x, divisor), m.number(0))


def _has_other_sign(m: Arithmetic, rest: Expr, y: Expr) -> Expr:
    """Return whether what C's fmod leaves has not the sign of the divisor."""
    zero = m.number(0)
    return tirx.any(tirx.all(rest < zero, y > zero), tirx.all(rest > zero, y < zero))


def _mod(m: Arithmetic, x: Expr, y: Expr) -> Expr:
    """Compute Python's ``%``: the result has the sign of ``y``."""
    if not _is_float(m):
        return _whole_remainder(m, x, y)
    rest, zero = library("fmod")(m, x, y), m.number(0)
    moved = tirx.Select(_has_other_sign(m, rest, y), rest + y, rest)
    return tirx.Select(tirx.EQ(rest, zero), tirx.copysign(zero, y), moved)


def _floordiv(m: Arithmetic, x: Expr, y: Expr) -> Expr:
    """Compute Python's ``//`` exactly, by dividing a multiple; ``x / y`` if y is 0."""
    if not _is_float(m):
        return _whole_quotient(m, x, y)
    zero, half, unit = (m.number(value) for value in (0, 0.5, 1))
    rest = library("fmod")(m, x, y)
    exact = (x - rest) / y - tirx.Select(_has_other_sign(m, rest, y), unit, zero)
    down = tirx.floor(exact)
    nearest = tirx.Select(exact - down > half, down + unit, down)
    signed = tirx.Select(tirx.EQ(exact, zero), tirx.copysign(zero, x / y), nearest)
    return tirx.Select(tirx.EQ(y, zero), x / y, signed)


def _not_equal(x: Expr, y: Expr) -> Expr:
    """Compare for inequality, but not by ``x != y``, which LLVM may take as false for NaN."""
    if "float" not in str(x.ty):
        return tirx.NE(x, y)
    return tirx.any(x < y, y < x, tirx.isnan(x), tirx.isnan(y))


def _whole(x: Expr) -> Expr:
    """A bool as 0 or 1, by which TVM can compare it; a number as it is."""
    return x.astype("int8") if str(x.ty) == "bool" else x


def _comparing(function: Callable[[Expr, Expr], Expr]) -> Formula:
    return lambda _, x, y: function(_whole(x), _whole(y))


def _plain(function: Callable[..., Expr]) -> Formula:
    """A function of TVM, for every target and type."""
    return lambda _, *operands: function(*operands)


def _of_floats(function: Callable[[Expr], Expr]) -> Formula:
    """A function of TVM that leaves whole numbers as they are."""
    return lambda m, x: function(x) if _is_float(m) else x


def _shifting(function: Callable[[Expr, Expr], Expr]) -> Formula:
    """Shift, but for 0 where the places are all of the type's: processors differ there."""

    def shift(m: Arithmetic, x: Expr, y: Expr) -> Expr:
        beyond = y >= m.number(int(re.sub(r"\D", "", m.dtype)))
        zero = m.number(0)
        return tirx.Select(beyond, zero, function(x, tirx.Select(beyond, zero, y)))

    return shift


# Chains of these are one kernel, on float32.
ARITHMETIC: dict[str, Formula] = {
    "add": lambda _, x, y: x + y,
    "div": lambda _, x, y: x / y,
    "maximum": _plain(maximum),
    "minimum": _plain(minimum),
    "mul": lambda _, x, y: x * y,
    "negative": _negative,
    "sqrt": _plain(tirx.sqrt),
    "sub": lambda _, x, y: x - y,
}
# So are functions of a number,
FUNCTIONS: dict[str, Formula] = {
    "abs": _plain(tirx.abs),
    "ceil": _of_floats(tirx.ceil),
    "erf": lambda m, x: m.erf(x),
    "exp": lambda m, x: m.any_exp(x),
    "floor": _of_floats(tirx.floor),
}
# and these, which make a gate of a product, too.
ACTIVATIONS: dict[str, Formula] = {
    "gelu": _gelu,
    "gelu_quick": _gelu_quick,
    "gelu_tanh": _gelu_tanh,
    "hard_swish": _hard_swish,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "silu": lambda m, x: x * _sigmoid(m, x),
    "tanh": lambda m, x: m.tanh(x),
}
# And these, which make whole numbers.
ROUNDING: dict[str, Formula] = {
    "round": _of_floats(tirx.nearbyint),
    "trunc": _of_floats(tirx.trunc),
}
CHAINED = ARITHMETIC | FUNCTIONS | ACTIVATIONS | ROUNDING
FORMULAS: dict[str, Formula] = CHAINED | {
    "acos": library("acos"),
    "asin": library("asin"),
    "atan": library("atan"),
    "atanh": library("atanh"),
    "bitwise_and": _plain(tirx.bitwise_and),
    "bitwise_not": _plain(tirx.bitwise_not),
    "bitwise_or": _plain(tirx.bitwise_or),
    "bitwise_xor": _plain(tirx.bitwise_xor),
    "cos": library("cos"),
    "equal": _comparing(tirx.EQ),
    "floordiv": _floordiv,
    "greater": _comparing(lambda x, y: y < x),
    "greater_equal": _comparing(lambda x, y: y <= x),
    "is_inf": lambda m, x: tirx.EQ(tirx.abs(x), m.number(float("inf"))),
    "is_nan": _plain(tirx.isnan),
    "less": _comparing(lambda x, y: x < y),
    "less_equal": _comparing(lambda x, y: x <= y),
    "log": _plain(tirx.log),
    "log1p": library("log1p"),
    "logical_and": _plain(tirx.all),
    "logical_not": lambda _, x: tirx.EQ(_whole(x), tirx.const(0, "int8")),
    "logical_or": _plain(tirx.any),
    "logical_xor": _comparing(tirx.NE),
    "mod": _mod,
    "not_equal": _comparing(_not_equal),
    "pow": library("pow"),
    "rsqrt": _plain(tirx.rsqrt),
    "shift_left": _shifting(tirx.shift_left),
    "shift_right": _shifting(tirx.shift_right),
    "sin": library("sin"),
    "softplus": _softplus,
}
