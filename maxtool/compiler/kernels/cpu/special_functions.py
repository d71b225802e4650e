"""Vectors of functions that LLVM would call once per element, on top of ``builder.exp``.

The polynomials are our own fits, by weighted least squares at Chebyshev nodes, rounded to float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.formulas import Arithmetic

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

# exp(z * z) * erfc(z) / 2 for z >= 0 as t * polynomial(t), t = 1 / (1 + ERFC_SCALE * z); relative
# error below 3e-8.
ERFC_COEFFICIENTS = (
    -0.015400313772261143,
    0.10229995101690292,
    -0.2571970224380493,
    0.28417906165122986,
    -0.15095122158527374,
    0.14078041911125183,
    0.0631825178861618,
    0.10781862586736679,
    0.11243225634098053,
    0.11285573989152908,
)
ERFC_SCALE = 0.4

# erf(x) / x on [0, 1] as polynomial(x * x); relative error below 6e-8.
ERF_COEFFICIENTS = (
    -0.0005625396152026951,
    0.004916023463010788,
    -0.02670994959771633,
    0.11280130594968796,
    -0.37612318992614746,
    1.1283791065216064,
)
ERF_SMALL = 1.0

# From here on e**x is the square of e**(x / 2), which may be infinite.
EXP_LARGE = 80.0


class Vectors(Arithmetic):
    """Vectors of float32 in a register, as formulas compute with them."""

    def __init__(self, width: int) -> None:
        super().__init__("float32", in_registers=True)
        self._width = width

    def number(self, value: float) -> b.Expr:
        """Return a vector of one constant."""
        return b.splat(float(value), self._width)

    def exp(self, x: b.Expr) -> b.Expr:
        """Return ``e**x``."""
        return b.exp(x, self._width)

    def any_exp(self, x: b.Expr) -> b.Expr:
        """Return ``e**x`` of any number, infinity where it is too large."""
        is_large, most = x > self.number(EXP_LARGE), self.number(EXP_LARGE)
        half = b.let(x * self.number(0.5))
        bounded = tirx.Select(half > most, most, half)
        power = b.let(self.exp(b.let(tirx.Select(is_large, bounded, x))))
        return tirx.Select(is_large, power * power, power)

    def erf(self, x: b.Expr) -> b.Expr:
        """Return the error function, relative error below 2e-7; NaN stays."""
        zero, one = self.number(0), self.number(1)
        size = b.let(tirx.Select(x < zero, zero - x, x))
        square = b.let(size * size)
        small = size * self._polynomial(ERF_COEFFICIENTS, square)
        large = one - self.number(2) * self.half_erfc(size)
        value = b.let(tirx.Select(size < self.number(ERF_SMALL), small, large))
        return tirx.Select(x < zero, zero - value, value)

    def half_erfc(self, x: b.Expr) -> b.Expr:
        """Return ``(1 - erf(x)) / 2``."""
        zero, one = self.number(0), self.number(1)
        size = b.let(tirx.Select(x < zero, zero - x, x))
        t = b.let(one / (one + self.number(ERFC_SCALE) * size))
        above = b.let(self.exp(zero - size * size) * (t * self._polynomial(ERFC_COEFFICIENTS, t)))
        return tirx.Select(x < zero, one - above, above)

    def tanh(self, x: b.Expr) -> b.Expr:
        """Return the hyperbolic tangent, relative error below 2e-7; NaN stays."""
        zero, unit = self.number(0), self.number(1)
        size = b.let(tirx.Select(x < zero, zero - x, x))
        square = b.let(size * size)
        small = size + size * square * self._polynomial(TANH_COEFFICIENTS, square)
        limit = self.number(TANH_LARGE)
        bounded = b.let(tirx.Select(size > limit, limit, size))
        large = unit - self.number(2) / (self.exp(bounded + bounded) + unit)
        value = b.let(tirx.Select(size < self.number(TANH_SMALL), small, large))
        return tirx.Select(x < zero, zero - value, value)

    def _polynomial(self, coefficients: Sequence[float], x: b.Expr) -> b.Expr:
        """Evaluate by Horner's rule, the highest power's coefficient first."""
        total = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            total = total * x + self.number(coefficient)
        return total
