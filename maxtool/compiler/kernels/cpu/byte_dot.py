"""Products of bytes of images with bytes of filters, by what a machine has for quantized weights.

An image's bytes are spread, four neighbouring terms to every lane; a filter's are vectors of four
terms of each feature. No product or sum ever saturates: where there are only instructions whose
sums of pairs of bytes would, bytes are widened to 16 bits first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import CpuTarget, RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.convolution_tiles import ImageTiles, best_tile, tiles_of
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet, Multiply, instruction_set
from maxtool.compiler.kernels.kernel_options import Window

# Neighbouring terms of a lane.
GROUP = 4

# Half of the numbers of a byte: its bit makes one with a sign of one without, and back.
HALF = 128

# Registers that operands take besides those that tiles reckon with, where they are widened or
# where no product reads memory.
MORE_OPERANDS = 4


@dataclass(frozen=True, slots=True)
class ByteDot:
    """A way to add products of the bytes of an image and of a filter.

    Attributes:
        lanes: int32 sums in a vector.
        signed: Whether it takes bytes of the image that have a sign; those of filters have one.
        words: Whether it takes 16 bits.
        multiply: Adds the products of two vectors, of which the first is the image's.
    """

    lanes: int
    signed: bool
    words: bool
    multiply: Multiply

    @property
    def dtype(self) -> str:
        """Type of the image's bytes as it takes them."""
        return "int8" if self.signed else "uint8"

    def add(self, sums: b.Expr, values: list[b.Expr], weights: list[b.Expr]) -> b.Expr:
        """Sums and 4 more products in each lane."""
        for value, weight in zip(values, weights, strict=True):
            sums = self.multiply(sums, value, weight)
        return sums

    def spread(self, word: b.Expr, *, flipped: bool) -> list[b.Expr]:
        """Four bytes of an image in every lane; ``flipped`` if they have a sign too many or few."""
        each = b.vector_type("uint8", GROUP * self.lanes)
        value = b.let(T.reinterpret(each, b.splat(word, self.lanes)))
        if flipped:
            value = b.let(value ^ b.splat(tirx.const(HALF, "uint8"), GROUP * self.lanes))
        if not self.words:
            return [value]
        pairs = b.let(T.reinterpret(b.vector_type("uint16", 2 * self.lanes), value))
        low = pairs & self._pairs(0xFF, "uint16")
        return [b.let(low), b.let(T.shift_right(pairs, self._pairs(8, "uint16")))]

    def features(self, weights: b.Expr) -> list[b.Expr]:
        """A vector of a filter's bytes as ``add`` takes it."""
        if not self.words:
            return [b.let(weights)]
        pairs = b.let(T.reinterpret(b.vector_type("int16", 2 * self.lanes), weights))
        eight = self._pairs(8, "int16")
        low = T.shift_right(T.shift_left(pairs, eight), eight)
        return [b.let(low), b.let(T.shift_right(pairs, eight))]

    def _pairs(self, value: int, dtype: str) -> b.Expr:
        return b.splat(tirx.const(value, dtype), 2 * self.lanes)


def byte_dot(machine: InstructionSet) -> ByteDot:
    """Return the way of an instruction set that no bytes are too large for."""
    dot = machine.wide
    return ByteDot(dot.lanes, dot.signed, dot.words, dot.multiply)


def byte_tiles(
    target: CpuTarget, window: Window, image: tuple[int, int], channels: int, features: int
) -> ImageTiles:
    """Return the tiles of a convolution of bytes on a CPU."""
    return tiles_of(_byte_tile(target), window, image, channels, features, size_in_bytes=1)


def best_byte_tile(
    target: CpuTarget, window: Window, channels: int, features: int
) -> tuple[int, int]:
    """Return the block of features and the neighbours of a tile of images of any size."""
    return best_tile(_byte_tile(target), window, channels, features, size_in_bytes=1)


def _byte_tile(target: CpuTarget) -> RegisterTile:
    dot = byte_dot(instruction_set(target))
    more = MORE_OPERANDS if dot.words or dot.signed else 0
    return replace(target.tile, width=dot.lanes, registers=target.tile.registers - more)


def runs(window: Window, channels: int) -> tuple[int, int]:
    """Return how many runs of neighbouring terms a window has, and how many terms one has.

    Columns of a window are neighbours unless it is dilated.
    """
    rows, columns = window.size
    if window.dilation[1] > 1 and columns > 1:
        return rows * columns, channels
    return rows, columns * channels


def groups(terms: int) -> int:
    """Return the groups of so many terms, of which the last may be filled up."""
    return -(-terms // GROUP)
