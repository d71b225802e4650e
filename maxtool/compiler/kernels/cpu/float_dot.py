"""Products of floats: term by term in float32, or pairs of bfloat16 by an instruction.

Weights of 16 bits are widened in registers, which is exact. Where a machine multiplies pairs of
bfloat16, matrices of that type lie in pairs of terms, and tiles of several rows are rounded to
bfloat16. Products of two bfloat16 are exact in float32, but these instructions take subnormal
numbers for zeros, and make zeros of sums that are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements
from maxtool.compiler.kernels.cpu.transpose import transposed

# Sums, and int32 lanes that hold pairs of bfloat16 of weights and of activations -> sums.
Multiply: TypeAlias = Callable[[b.Expr, b.Expr, b.Expr], b.Expr]


@dataclass(frozen=True, slots=True)
class TermDot:
    """Products of one term in float32."""

    width: int
    dtype: str
    terms: ClassVar[int] = 1
    packed_dtype: ClassVar[str] = "float32"
    suffix: ClassVar[str] = ""  # of the names of kernels

    def matrix(self, kernel: b.Kernel, *shape: b.Index) -> tuple[b.Index, ...]:  # noqa: ARG002
        """The shape of packed weights ``[..., k, columns]``, as an argument of a kernel."""
        return shape

    def place(self, *index: b.Index) -> tuple[b.Index, ...]:
        """The place of a column of weights."""
        return index

    def operand(self, w: b.Buffer, index: Sequence[b.Index]) -> b.Expr:
        """A vector of columns of weights, as ``multiply`` takes them."""
        return b.load_weight(w, index, self.width, self.dtype)

    def widened(self, w: b.Buffer, index: Sequence[b.Index]) -> list[b.Expr]:
        """The same as float32, a vector for each term."""
        return [self.operand(w, index)]

    def multiply(self, sums: b.Expr, weights: b.Expr, values: b.Expr) -> b.Expr:
        """Sums and the products of weights and activations."""
        return sums + values * weights

    def pack(self, packed: b.Buffer, tile: b.Expr, x: b.Buffer, rows: Sequence[b.Indices]) -> None:
        """Copy rows of x so that those of one term are neighbours."""
        k = x.shape[-1]

        def read(row: b.Indices, step: b.Expr, count: int) -> b.Expr:
            return b.load(x, (*row, step), count)

        done = _pack_squares((packed, tile), rows, k, read)
        with T.serial(done, k) as step:
            for r, row in enumerate(rows):
                b.store(packed, read(row, step, 1), (tile, step, r))

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Emit statements that multiply so."""
        yield


@dataclass(frozen=True, slots=True)
class PairDot:
    """Products of pairs of bfloat16.

    Attributes:
        width: float32 lanes of a vector.
        instruction: Adds the products of both terms to each lane.
        code: What the instruction is in LLVM's language, as TVM has no bfloat16 vectors.
    """

    width: int
    instruction: Multiply
    code: str = ""
    terms: ClassVar[int] = 2
    packed_dtype: ClassVar[str] = "int32"
    suffix: ClassVar[str] = "_pairs"

    def matrix(self, kernel: b.Kernel, *shape: b.Index) -> tuple[b.Index, ...]:
        """The shape of packed weights ``[..., k, columns]``, as an argument of a kernel.

        Steps have a name of their own, as arguments whose sizes are computed cannot be joined.
        """
        *outer, _, columns = shape
        return *outer, kernel.dim("steps"), columns, self.terms

    def place(self, *index: b.Index) -> tuple[b.Index, ...]:
        """The place of a column of weights, whose terms are neighbours."""
        return *index, 0

    def operand(self, w: b.Buffer, index: Sequence[b.Index]) -> b.Expr:
        """A vector of columns of weights, as ``multiply`` takes them."""
        pairs = b.load(w, (*index, 0), self.terms * self.width)
        return T.reinterpret(b.vector_type("int32", self.width), pairs)

    def widened(self, w: b.Buffer, index: Sequence[b.Index]) -> list[b.Expr]:
        """The same as float32, a vector for each term."""
        return _halves(b.let(self.operand(w, index)), self.width)

    def multiply(self, sums: b.Expr, weights: b.Expr, values: b.Expr) -> b.Expr:
        """Sums and the products of weights and activations."""
        return self.instruction(sums, weights, values)

    def pack(self, packed: b.Buffer, tile: b.Expr, x: b.Buffer, rows: Sequence[b.Indices]) -> None:
        """Round rows of x so that those of one pair of terms are neighbours; 0 stands beyond k."""
        k = x.shape[-1]

        def read(row: b.Indices, step: b.Expr, count: int) -> b.Expr:
            values = b.load(x, (*row, step * self.terms), count * self.terms)
            return _rounded_pairs(b.let(values), count * self.terms)

        whole = b.quotient(k, self.terms)
        done = _pack_squares((packed, tile), rows, whole, read)
        with T.serial(done, whole) as step:
            for r, row in enumerate(rows):
                b.store(packed, read(row, step, 1), (tile, step, r))
        with b.when(whole * self.terms < k):
            for r, row in enumerate(rows):
                last = elements.bfloat16(b.let(x[(*row, k - 1)]), 1)
                b.store(packed, T.Cast("int32", last), (tile, whole, r))

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Emit statements that multiply so."""
        if not self.code:
            yield
            return
        with T.attr(0, "pragma_import_llvm", self.code):
            yield


FloatDot: TypeAlias = TermDot | PairDot


def _halves(pairs: b.Expr, width: int) -> list[b.Expr]:
    """Both bfloat16 of each lane as float32."""
    floats = b.vector_type("float32", width)
    low = T.shift_left(pairs, b.splat(b.int32(16), width))
    high = pairs & b.splat(b.int32(-0x10000), width)
    return [T.reinterpret(floats, each) for each in (low, high)]


def _pack_squares(
    to: tuple[b.Buffer, b.Expr],
    rows: Sequence[b.Indices],
    steps: b.Expr,
    read: Callable[[b.Indices, b.Expr, int], b.Expr],
) -> b.Expr:
    """Pack as many steps of rows into a tile as are whole squares; returns how many those are.

    The last square of rows may overlap the one before it, and writes the same.
    """
    packed, tile = to
    side = 8 if len(rows) >= 8 else 4
    firsts = [*range(0, len(rows) - side, side), len(rows) - side]
    squares = T.Bind(b.quotient(steps, side))
    with T.serial(squares) as square:
        step = b.index(square * side)
        for first in firsts:
            vectors = [b.let(read(row, step, side)) for row in rows[first : first + side]]
            for column, vector in enumerate(transposed(vectors)):
                b.store(packed, vector, (tile, step + column, first), side)
    return squares * side


def _rounded_pairs(values: b.Expr, width: int) -> b.Expr:
    """Pairs of neighbours in int32 lanes, rounded to the nearest bfloat16."""
    bits = b.let(elements.bfloat16(values, width))
    return T.reinterpret(b.vector_type("int32", width // 2), bits)


def plain_pairs(width: int) -> Multiply:
    """Return what every set computes: the second product added first, as x86 does."""

    def multiply(sums: b.Expr, weights: b.Expr, values: b.Expr) -> b.Expr:
        both = (_halves(b.let(pairs), width) for pairs in (weights, values))
        for weight, value in reversed(list(zip(*both, strict=True))):
            sums = sums + weight * value
        return sums

    return multiply


CODE = """
declare <{width} x float> @llvm.{name}(<{width} x float>, <{pairs} x bfloat>, <{pairs} x bfloat>)

define weak_odr hidden <{width} x float> @maxtool_dot_bfloat16(
    <{width} x float> %sums, <{width} x i32> %a, <{width} x i32> %b
) alwaysinline nounwind readnone {{
  %weights = bitcast <{width} x i32> %a to <{pairs} x bfloat>
  %values = bitcast <{width} x i32> %b to <{pairs} x bfloat>
  %result = call <{width} x float> @llvm.{name}(
      <{width} x float> %sums, <{pairs} x bfloat> %weights, <{pairs} x bfloat> %values)
  ret <{width} x float> %result
}}
"""


def _by_instruction(name: str, width: int) -> PairDot:
    """Return the instruction that LLVM calls so: two products added to each float32 lane."""
    floats = b.vector_type("float32", width)

    def multiply(sums: b.Expr, weights: b.Expr, values: b.Expr) -> b.Expr:
        return T.call_pure_extern(floats, "maxtool_dot_bfloat16", sums, weights, values)

    return PairDot(width, multiply, CODE.format(name=name, width=width, pairs=2 * width))


# LLVM feature -> products of pairs of bfloat16.
PAIRS: dict[str, PairDot] = {
    "avx512bf16": _by_instruction("x86.avx512bf16.dpbf16ps.512", 16),
    "bf16": _by_instruction("aarch64.neon.bfdot.v4f32.v8bf16", 4),
}


def float_dot(tile: RegisterTile, dtype: str, terms: int) -> FloatDot:
    """Return how weights of a type are multiplied that lie so many terms side by side."""
    if terms == 1:
        return TermDot(tile.width, dtype)
    if tile.pairs is None:
        return PairDot(tile.width, plain_pairs(tile.width))
    return PAIRS[tile.pairs]
