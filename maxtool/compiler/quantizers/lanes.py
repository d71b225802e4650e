"""Vectors with a lane for each of several blocks, and the arithmetic of quantizers on them.

In every lane the operations come in the order of ``quantization/primitives.py``, which is ggml's:
results have the same bits, whatever the width. Products are fenced off from sums, as TVM lets LLVM
contract both into one instruction that rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.element_types import constant
from maxtool.quantization.primitives import EXPONENT, MANTISSA, ROUNDING

MAGNITUDE, SIGN = 0x7FFF_FFFF, 0x8000_0000
INFINITY_BITS = 0x7F80_0000


class Variable:
    """A vector in a register that changes."""

    def __init__(self, width: int, initial: b.Expr) -> None:
        self._width = width
        self._buffer = b.scratch((width,), str(initial.ty).partition("x")[0])
        self.set(initial)

    @property
    def value(self) -> b.Expr:
        """The vector that it holds when the expression is computed."""
        return b.load(self._buffer, (0,), self._width)

    def set(self, value: b.Expr, where: b.Expr = None) -> None:
        """Replace the lanes in which ``where`` holds; all without it."""
        if where is not None:
            value = tirx.Select(where, value, self.value)
        b.store(self._buffer, value, (0,), self._width)


class Lanes:
    """Arithmetic on vectors of ``width`` lanes."""

    def __init__(self, width: int) -> None:
        self.width = width

    def number(self, value: float | np.float32) -> b.Expr:
        """A vector of one float32."""
        return b.splat(float(np.float32(value)), self.width)

    def bits(self, value: int) -> b.Expr:
        """A vector of one uint32."""
        return constant(value, "uint32", self.width)

    def broadcast(self, scalar: b.Expr) -> b.Expr:
        """A vector of a number that is computed."""
        return b.let(b.splat(scalar, self.width))

    def zero(self) -> b.Expr:
        """A zero that TVM does not know: adding it makes a zero of a negative zero."""
        return b.let(self.number(0))

    def variable(self, initial: float | b.Expr) -> Variable:
        """A variable that begins so."""
        if isinstance(initial, (int, float)):
            initial = self.number(initial)
        return Variable(self.width, initial)

    def table(self, *shape: int, dtype: str = "float32") -> b.Buffer:
        """Memory for vectors: ``[*shape, lanes]``."""
        return b.scratch((*shape, self.width), dtype)

    def get(self, table: b.Buffer, *index: b.Index) -> b.Expr:
        """A vector of a table."""
        return b.load(table, (*index, 0), self.width)

    def put(self, table: b.Buffer, value: b.Expr, *index: b.Index) -> None:
        """Store a vector in a table."""
        b.store(table, value, (*index, 0), self.width)

    def product(self, first: b.Expr, *others: b.Expr) -> b.Expr:
        """The product of vectors, from left to right, each rounded."""
        for other in others:
            first = b.let(fenced(first * other, self.width))
        return first

    def as_bits(self, value: b.Expr) -> b.Expr:
        """The bits of float32."""
        return T.reinterpret(b.vector_type("uint32", self.width), value)

    def as_floats(self, bits: b.Expr) -> b.Expr:
        """Return float32 with these bits."""
        return T.reinterpret(b.vector_type("float32", self.width), bits)

    def integers(self, whole: b.Expr) -> b.Expr:
        """Numbers as uint32, truncated; negative ones wrap around."""
        signed = T.Cast(b.vector_type("int32", self.width), whole)
        return b.let(T.reinterpret(b.vector_type("uint32", self.width), signed))

    def floats(self, integers: b.Expr) -> b.Expr:
        """uint32 below 2**31 as float32."""
        signed = T.reinterpret(b.vector_type("int32", self.width), integers)
        return b.let(T.Cast(b.vector_type("float32", self.width), signed))

    def magnitude(self, value: b.Expr) -> b.Expr:
        """Return ``|value|``."""
        return b.let(self.as_floats(self.as_bits(value) & self.bits(MAGNITUDE)))

    def nearest(self, value: b.Expr) -> b.Expr:
        """``primitives.nearest``."""
        raised = b.let(self.as_bits(value + self.number(float(ROUNDING))))
        whole = (raised & self.bits(int(MANTISSA))) | self.bits(int(EXPONENT))
        return b.let(self.as_floats(b.let(whole)) - self.number(float(ROUNDING)))

    def clamped(self, value: b.Expr, least: float, most: float) -> b.Expr:
        """Numbers, none of which is NaN, in a range."""
        low, high = self.number(least), self.number(most)
        value = b.let(tirx.Select(value < low, low, value))
        return b.let(tirx.Select(value > high, high, value))

    def rounded(self, value: b.Expr, least: float, most: float) -> b.Expr:
        """``primitives.rounded``."""
        return self.clamped(self.nearest(value), least, most)

    def inverse(self, scale: b.Expr) -> b.Expr:
        """``1 / scale``; 0 where that is not finite."""
        inverted = b.let(self.number(1) / scale)
        return b.let(tirx.Select(self.is_finite(inverted), inverted, self.number(0)))

    def is_finite(self, value: b.Expr) -> b.Expr:
        """Return whether a number is neither NaN nor infinite."""
        return (self.as_bits(value) & self.bits(MAGNITUDE)) < self.bits(INFINITY_BITS)

    def is_nonzero(self, value: b.Expr) -> b.Expr:
        """Return whether a number is not zero; NaN is not."""
        return (self.as_bits(value) & self.bits(MAGNITUDE)) > self.bits(0)

    def flags(self, where: b.Expr) -> b.Expr:
        """1 where something holds, else 0."""
        return tirx.Select(where, self.bits(1), self.bits(0))

    def half(self, value: b.Expr) -> b.Expr:
        """The bits of the nearest float16, in uint32."""
        narrow = b.let(T.Cast(b.vector_type("float16", self.width), value))
        bits = T.reinterpret(b.vector_type("uint16", self.width), narrow)
        return b.let(T.Cast(b.vector_type("uint32", self.width), bits))

    def widened(self, half: b.Expr) -> b.Expr:
        """The float32 of float16 bits, in uint32."""
        bits = b.let(T.Cast(b.vector_type("uint16", self.width), half))
        narrow = b.let(T.reinterpret(b.vector_type("float16", self.width), bits))
        return b.let(T.Cast(b.vector_type("float32", self.width), narrow))

    def totals(
        self, count: int, terms: Callable[[b.Expr], Sequence[b.Expr]], starts: Sequence[float]
    ) -> list[b.Expr]:
        """Sums over ``count`` elements, term after term, from where each starts."""
        sums = [self.variable(start) for start in starts]
        with T.serial(b.integer(count)) as element:
            for total, term in zip(sums, terms(element), strict=True):
                total.set(total.value + term)
        return [b.let(total.value) for total in sums]

    def first_largest(self, count: int, value: Callable[[b.Expr], b.Expr]) -> b.Expr:
        """``primitives.first_largest`` of ``count`` elements."""
        largest, most = self.variable(0), self.variable(self.bits(0))
        with T.serial(b.integer(count)) as element:
            here = b.let(value(element))
            size = b.let(self.as_bits(here) & self.bits(MAGNITUDE))
            larger = size > most.value
            largest.set(here, larger)
            most.set(size, size > most.value)
        return b.let(largest.value)

    def extremes(self, count: int, value: Callable[[b.Expr], b.Expr]) -> tuple[b.Expr, b.Expr]:
        """``primitives.extremes`` of ``count`` elements."""
        first = b.let(value(b.integer(0)))
        least, most = self.variable(first), self.variable(first)
        with T.serial(1, b.integer(count)) as element:
            here = b.let(value(element))
            least.set(here, here < least.value)
            most.set(here, here > most.value)
        return b.let(least.value), b.let(most.value)


def fenced(value: b.Expr, width: int = 1) -> b.Expr:
    """A number that is rounded to float32 before it is used."""
    kind = b.vector_type("float32", width)
    return T.call_llvm_pure_intrin(kind, "llvm.arithmetic.fence", value)
