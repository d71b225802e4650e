"""Vectors of functions that LLVM would call once per element, on top of ``builder.exp``.

The polynomials are our own fits, by weighted least squares at Chebyshev nodes, rounded to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b

# tanh(x) / x on [0, TANH_SMALL] as 1 + s * polynomial(s), s = x * x, highest power first; 6e-9 off.
TANH_COEFFICIENTS = (
    -0.005528634414076805,
    0.020483316853642464,
    -0.05369296669960022,
    0.1333089917898178,
    -0.3333326280117035,
)
TANH_SMALL = 0.65
TANH_LARGE = 9.25  # from here on it is 1 in float32

# exp(z * z) * erfc(z) for z >= 0 as t * polynomial(t), t = 1 / (1 + ERFC_SCALE * z); 7e-9 off.
ERFC_COEFFICIENTS = (
    -0.030800627544522285,
    0.20459990203380585,
    -0.5143940448760986,
    0.5683581233024597,
    -0.3019024431705475,
    0.28156083822250366,
    0.1263650357723236,
    0.21563725173473358,
    0.22486451268196106,
    0.22571147978305817,
)
ERFC_SCALE = 0.4


def sigmoid(lanes: int, x: b.Expr) -> b.Expr:
    """``1 / (1 + exp(-x))`` from exp(-abs(x)), which cannot overflow."""
    zero, one = b.splat(0.0, lanes), b.splat(1.0, lanes)
    negative = x < zero
    e = b.let(b.exp(T.Select(negative, x, zero - x), lanes))
    return T.Select(negative, e, one) / (one + e)


def tanh(lanes: int, x: b.Expr) -> b.Expr:
    """The hyperbolic tangent, relative error below 2e-7; NaN stays."""
    zero, one = b.splat(0.0, lanes), b.splat(1.0, lanes)
    size = b.let(T.Select(x < zero, zero - x, x))
    square = b.let(size * size)
    small = size + size * square * _polynomial(TANH_COEFFICIENTS, square, lanes)
    bounded = b.let(T.Select(size > b.splat(TANH_LARGE, lanes), b.splat(TANH_LARGE, lanes), size))
    large = one - b.splat(2.0, lanes) / (b.exp(bounded + bounded, lanes) + one)
    value = b.let(T.Select(size < b.splat(TANH_SMALL, lanes), small, large))
    return T.Select(x < zero, zero - value, value)


def gelu(lanes: int, x: b.Expr) -> b.Expr:
    """``x`` times the normal distribution function, which is ``erfc(-x / sqrt(2)) / 2``."""
    zero, one = b.splat(0.0, lanes), b.splat(1.0, lanes)
    z = b.let(T.Select(x < zero, zero - x, x) * b.splat(sqrt(0.5), lanes))
    t = b.let(one / (one + b.splat(ERFC_SCALE, lanes) * z))
    scaled = t * _polynomial(ERFC_COEFFICIENTS, t, lanes)
    below = b.let(b.splat(0.5, lanes) * b.exp(zero - z * z, lanes) * scaled)
    return x * T.Select(x < zero, below, one - below)


def gelu_tanh(lanes: int, x: b.Expr) -> b.Expr:
    """By ``(1 + tanh(u)) / 2 == sigmoid(2 u)``."""
    inner = x * (b.splat(1.0, lanes) + b.splat(0.044715, lanes) * x * x)
    return x * sigmoid(lanes, b.let(b.splat(2 * sqrt(2 / pi), lanes) * inner))


def gelu_quick(lanes: int, x: b.Expr) -> b.Expr:
    """``x * sigmoid(1.702 * x)``."""
    return x * sigmoid(lanes, b.let(b.splat(1.702, lanes) * x))


def _polynomial(coefficients: Sequence[float], x: b.Expr, lanes: int) -> b.Expr:
    """By Horner's rule, the highest power's coefficient first."""
    total = b.splat(coefficients[0], lanes)
    for coefficient in coefficients[1:]:
        total = total * x + b.splat(coefficient, lanes)
    return total
