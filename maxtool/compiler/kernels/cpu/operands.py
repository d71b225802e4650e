"""Weights and activations as instructions for quantized numbers want them to lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantized_layout import RecordLayout

# The largest quant of which 32 terms, times activations of any sign, fit int16 sums from 0 on.
LARGEST_FROM_ZERO = 15

# Codes below 16, a table for them -> entries.
LookUp: TypeAlias = Callable[[b.Expr, list[int]], b.Expr]


@dataclass(frozen=True, slots=True)
class Operands:
    """The form of both sides of a product.

    Attributes:
        lanes: Columns of a vector, which is of int32.
        look_up: Entries of a table of 16 bytes.
        sums: Type of the sums while terms that share a scale are added: int32, a sum in each lane;
            or int16, two in each, of two of the 4 terms each.
        words: Whether both sides are widened to int16: a vector of weights, or of activations, is
            two, of terms 0 and 2 and of terms 1 and 3.
        signed: Whether 8-bit weights are taken as they are, not as unsigned bytes with a zero.
        centred: Whether other weights lose their zero as they are unpacked.
        rows: Rows of activations that are multiplied at once.
        depth: Groups of 4 neighbouring terms that are multiplied at once.
        of_panels: Whether weights were unpacked before, with what is added to them.
    """

    lanes: int
    look_up: LookUp
    sums: str = "int32"
    words: bool = False
    signed: bool = False
    centred: bool = False
    rows: int = 1
    depth: int = 1
    of_panels: bool = False

    @property
    def parts(self) -> int:
        """The vectors that 4 terms of activations take."""
        return 2 if self.words else 1

    @property
    def neighbours(self) -> int:
        """Groups of a column that lie side by side in a panel."""
        return self.depth

    def of(self, layout: RecordLayout) -> Self:  # noqa: ARG002
        """The same for weights of a layout."""
        return self

    def pieces(self, weights: b.Expr) -> list[b.Expr]:
        """Bytes of 4 terms of each column as what is multiplied: ``parts`` vectors of as many."""
        if not self.words:
            return [weights]
        lanes = 2 * self.lanes
        pairs = b.let(T.reinterpret(b.vector_type("uint16", lanes), weights))
        low = pairs & b.splat(tirx.const(0xFF, "uint16"), lanes)
        high = T.shift_right(pairs, b.splat(tirx.const(8, "uint16"), lanes))
        bytes_of = b.vector_type("uint8", 2 * lanes)
        return [T.reinterpret(bytes_of, each) for each in (low, high)]

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Emit statements that multiply so."""
        yield

    def middle(self, layout: RecordLayout) -> int:
        """Return what is taken off quants, as they are unpacked or from their sums.

        With panels it is always half of the range: products of quants from 0 on would be large sums
        of one sign, which minima take off again, with what float32 has rounded.
        """
        narrow = self.sums == "int16" and layout.largest > LARGEST_FROM_ZERO
        if layout.zero == 0 and (narrow or self.of_panels):
            return (layout.largest + 1) // 2
        return layout.zero

    def zero(self, layout: RecordLayout) -> int:
        """Return what is taken off the sums of the weights that are multiplied."""
        if self.centred or (self.signed and (layout.signed or layout.values is not None)):
            return 0
        return self.middle(layout)

    def shift(self, layout: RecordLayout) -> int:
        """Return what is taken off beyond the zero of the encoding, to be added again."""
        return self.middle(layout) - layout.zero

    def needs_sums(self, layout: RecordLayout) -> bool:
        """Return whether sums of quants are multiplied by what is added to all weights."""
        return layout.has("m") or layout.has("dmin") or self.shift(layout) != 0

    def start_bits(self, low: b.Expr, high: b.Expr) -> b.Expr:
        """Bits of a lane that begins at ``low`` for terms 0 and 1, and ``high`` for terms 2 and 3.

        Both are int32; for int16 sums they must be in its range.
        """
        if self.sums == "int32":
            return low + high
        return (high << b.int32(16)) | (low & b.int32(0xFFFF))
