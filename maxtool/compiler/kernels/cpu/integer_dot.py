"""Instruction sets for products of quantized numbers: a table of primitives.

All work on vectors whose int32 lanes are columns, each with 4 neighbouring terms as bytes. Weights
are unsigned bytes, activations signed ones, and no product or sum here ever saturates or wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.operands import LookUp, Operands
from maxtool.compiler.kernels.cpu.tile_dot import TileDot, amx
from maxtool.compiler.quantized_layout import RecordLayout

# The largest quant that times -127 fits int16 as often as such sums add.
LARGEST_NARROW = 63

# Two vectors of int16 -> int32.
Pairs: TypeAlias = Callable[[b.Expr, b.Expr], b.Expr]
# Sums of earlier products, weights, activations -> sums.
Multiply: TypeAlias = Callable[[b.Expr, b.Expr, b.Expr], b.Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerDot(Operands):
    """A way to add products of weights and activations in vectors.

    A vector of sums has those of all rows that are multiplied at once.

    Attributes:
        multiply: Adds the products of a vector of weights and one of activations to sums.
        pairs: Adds the two int16 of each lane, times another two.
    """

    multiply: Multiply
    pairs: Pairs | None = None

    @property
    def sum_type(self) -> str:
        """Type of a vector of sums."""
        halves = 2 if self.sums == "int16" else 1
        return b.vector_type(self.sums, self.lanes * self.rows * halves)

    def start(self, bits: list[b.Expr]) -> b.Expr:
        """Sums that begin at what ``start_bits`` made for each row, the same in all lanes."""
        if self.rows == 1:
            return T.reinterpret(self.sum_type, b.splat(bits[0], self.lanes))
        each = [bits[row] for row, _ in self._places()]
        return tirx.Shuffle(each, list(range(len(each))))

    def add(self, sums: b.Expr, weights: b.Expr, activations: list[b.Expr]) -> b.Expr:
        """Sums and ``4 * depth`` more products in each lane.

        ``activations`` are ``parts`` int32 numbers, or a vector of those of several rows.
        """
        for weight, part in zip(self.pieces(weights), activations, strict=True):
            sums = self.add_piece(sums, weight, part)
        return sums

    def add_piece(self, sums: b.Expr, weights: b.Expr, activations: b.Expr) -> b.Expr:
        """Sums and the products of one of the vectors that 4 terms take."""
        value = b.splat(activations, self.lanes) if self.rows == 1 else activations
        return self.multiply(sums, weights, value)

    def total(self, sums: b.Expr, row: int) -> b.Expr:
        """Sums of one of the rows as int32, one in each lane."""
        if self.rows > 1:
            own = [lane for lane, (of, _) in enumerate(self._places()) if of == row]
            return tirx.Shuffle([b.let(sums)], own)
        if self.pairs is None:
            return sums
        return self.pairs(sums, b.splat(tirx.const(1, "int16"), 2 * self.lanes))

    def _places(self) -> list[tuple[int, int]]:
        """Row and column of each lane of sums: as many columns of each row as there are rows."""
        firsts, each = range(0, self.lanes, self.rows), range(self.rows)
        return [(row, first + column) for first in firsts for row in each for column in each]


def plain_bytes(lanes: int, sums: b.Expr, weights: b.Expr, activations: b.Expr) -> b.Expr:
    """4 products of unsigned by signed bytes added to each int32: what every set computes."""
    signed = T.reinterpret(b.vector_type("int8", 4 * lanes), activations)
    for term in range(4):
        places = list(range(term, 4 * lanes, 4))
        weight, value = (
            T.Cast(b.vector_type("int32", lanes), tirx.Shuffle([b.let(vector)], places))
            for vector in (weights, signed)
        )
        sums = sums + weight * value
    return sums


def plain_look_up(codes: b.Expr, table: list[int]) -> b.Expr:
    """The entry of a table of bytes for each byte below 16: what every set computes."""
    lanes = int(str(codes.ty).partition("x")[2])
    result = b.splat(tirx.const(0, "uint8"), lanes)
    for code, entry in enumerate(table):
        here = codes == b.splat(tirx.const(code, "uint8"), lanes)
        result = T.Select(here, b.splat(tirx.const(entry, "uint8"), lanes), result)
    return result


def generic(lanes: int) -> IntegerDot:
    """Return the set for machines that have none of their own: plain TensorIR."""
    return IntegerDot(lanes, plain_look_up, multiply=partial(plain_bytes, lanes))


def _x86(name: str, dtype: str) -> Callable[..., b.Expr]:
    """An instruction of x86; LLVM's integers have no sign."""
    return partial(T.call_llvm_pure_intrin, dtype, f"llvm.x86.{name}")


def _dot_bytes(name: str, lanes: int) -> Multiply:
    """Return ``vpdpbusd``: 4 products of unsigned by signed bytes added to each int32."""
    instruction = _x86(name, b.vector_type("int32", lanes))

    def multiply(sums: b.Expr, weights: b.Expr, activations: b.Expr) -> b.Expr:
        signed = b.vector_type("int8", 4 * lanes)
        return instruction(sums, T.reinterpret(signed, weights), T.reinterpret(signed, activations))

    return multiply


def _add_pairs_of_bytes(name: str, lanes: int) -> Multiply:
    """Return ``vpmaddubsw``: 2 products of unsigned by signed bytes in each int16, then a sum."""
    instruction = _x86(name, b.vector_type("int16", 2 * lanes))

    def multiply(sums: b.Expr, weights: b.Expr, activations: b.Expr) -> b.Expr:
        return sums + instruction(
            weights, T.reinterpret(b.vector_type("uint8", 4 * lanes), activations)
        )

    return multiply


def _add_pairs(pairs: Pairs, lanes: int) -> Multiply:
    """Return ``vpmaddwd`` and a sum: 2 products of int16 added to each int32."""

    def multiply(sums: b.Expr, weights: b.Expr, activations: b.Expr) -> b.Expr:
        words = b.vector_type("int16", 2 * lanes)
        return sums + pairs(T.reinterpret(words, weights), T.reinterpret(words, activations))

    return multiply


def _shuffle(name: str, lanes: int) -> LookUp:
    """Return ``vpshufb``: entries of a table of 16 bytes, which is repeated in every 16 bytes."""
    instruction = _x86(name, b.vector_type("uint8", 4 * lanes))
    return lambda codes, table: instruction(_repeated(table, lanes), codes)


def _repeated(table: list[int], lanes: int) -> b.Expr:
    """A table of 16 bytes in every 16 bytes of a vector."""
    data = bytes(table)
    words = [int.from_bytes(data[at : at + 4], "little", signed=True) for at in range(0, 16, 4)]
    vector = tirx.Shuffle([b.int32(word) for word in words] * (lanes // 4), list(range(lanes)))
    return T.reinterpret(b.vector_type("uint8", 4 * lanes), vector)


Dot: TypeAlias = IntegerDot | TileDot


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """Facts about a machine that kernels of quantized weights depend on.

    Attributes:
        narrow: How weights whose quants are at most 63 are multiplied.
        wide: How others are.
        floats: float32 lanes of a vector, for activations.
        rows: Rows of the tile of a product of many rows.
        blocks: Column blocks of a panel, of which weights are unpacked for many rows.
        matrices: How a tile is multiplied with weights that were unpacked before, whose bytes may
            be in another order then; None if that is as others are.
        unpacked: Whether weights were.
    """

    narrow: IntegerDot
    wide: IntegerDot
    floats: int
    rows: int
    blocks: int = 1
    matrices: Dot | None = None
    unpacked: bool = False

    @property
    def of_panels(self) -> InstructionSet:
        """The same for weights that were unpacked before."""
        return replace(self, unpacked=True)

    @property
    def few_rows(self) -> int:
        """Rows of a tile that is multiplied with weights as they are unpacked."""
        return max(2, self.narrow.lanes // 4)

    def dot(self, layout: RecordLayout) -> Dot:
        """Return the way to multiply weights of a layout."""
        if not self.unpacked:
            return self.unpacking(layout)
        dot = self.unpacking(layout) if self.matrices is None else self.matrices.of(layout)
        return replace(dot, of_panels=True)

    def unpacking(self, layout: RecordLayout) -> IntegerDot:
        """Return the way to multiply them as they are unpacked."""
        return self.narrow if layout.largest <= LARGEST_NARROW else self.wide


def _of_dots(
    dot: IntegerDot, rows: int, blocks: int = 1, matrices: Dot | None = None
) -> InstructionSet:
    """A set with an instruction for 4 products of bytes."""
    return InstructionSet(dot, dot, dot.lanes, rows, blocks, matrices)


def _of_pairs(
    lanes: int, names: tuple[str, str, str], rows: int, blocks: int = 1
) -> InstructionSet:
    """A set with ``vpmaddubsw``, ``vpmaddwd`` and ``vpshufb`` of a width."""
    of_bytes, of_words, shuffle = names
    pairs = _x86(of_words, b.vector_type("int32", lanes))
    look_up = _shuffle(shuffle, lanes)
    products = _add_pairs_of_bytes(of_bytes, lanes)
    narrow = IntegerDot(lanes, look_up, multiply=products, pairs=pairs, sums="int16")
    wide = IntegerDot(lanes, look_up, multiply=_add_pairs(pairs, lanes), words=True)
    return InstructionSet(narrow, wide, lanes, rows, blocks)


def _vnni(lanes: int, dot: str, shuffle: str) -> IntegerDot:
    """Return ``vpdpbusd`` of a width."""
    return IntegerDot(lanes, _shuffle(shuffle, lanes), multiply=_dot_bytes(dot, lanes))


def _neon(name: str, *operands: b.Expr) -> b.Expr:
    """Sums of products of two vectors of 16 signed bytes: an instruction of aarch64."""
    sums, *factors = operands
    signed = [T.reinterpret("int8x16", factor) for factor in factors]
    return T.call_llvm_pure_intrin(
        "int32x4", f"llvm.aarch64.neon.{name}.v4i32.v16i8", sums, *signed
    )


def _tbl(codes: b.Expr, table: list[int]) -> b.Expr:
    """``tbl``: entries of a table of 16 bytes."""
    name = "llvm.aarch64.neon.tbl1.v16i8"
    return T.call_llvm_pure_intrin("uint8x16", name, _repeated(table, 4), codes)


def _smmla(sums: b.Expr, weights: b.Expr, activations: b.Expr) -> b.Expr:
    """``smmla``, twice: 8 products for each of 2 rows by 2 columns, of which there are 4."""
    both = b.let(T.reinterpret("int8x32", weights))
    results = []
    for half in range(2):
        here = tirx.Shuffle([sums], list(range(4 * half, 4 * half + 4)))
        weight = tirx.Shuffle([both], list(range(16 * half, 16 * half + 16)))
        results.append(b.let(_neon("smmla", here, activations, weight)))
    return tirx.Shuffle(results, list(range(8)))


SDOT = IntegerDot(4, _tbl, multiply=partial(_neon, "sdot"), signed=True)
SMMLA = IntegerDot(4, _tbl, multiply=_smmla, signed=True, rows=2, depth=2)

AVX512_PAIRS = ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512", "avx512.pshuf.b.512")
VNNI = _vnni(16, "avx512.vpdpbusd.512", AVX512_PAIRS[-1])
AVX2_PAIRS = ("avx2.pmadd.ub.sw", "avx2.pmadd.wd", "avx2.pshuf.b")

# LLVM feature -> set, the best first. Tiles of vectors have two of columns at least, which halves
# what is read of activations, and as many rows as there are registers for.
SETS: dict[str, InstructionSet] = {
    "amx-int8": _of_dots(VNNI, rows=16, matrices=amx(VNNI.look_up)),
    "avx512vnni": _of_dots(VNNI, rows=6, blocks=2),
    "avx512bw": _of_pairs(16, AVX512_PAIRS, rows=6, blocks=2),
    "avxvnni": _of_dots(_vnni(8, "avx512.vpdpbusd.256", AVX2_PAIRS[-1]), rows=5),
    "avx2": _of_pairs(8, AVX2_PAIRS, rows=5),
    "i8mm": _of_dots(SDOT, rows=6, matrices=SMMLA),  # no CPU has it without the next
    "dotprod": _of_dots(SDOT, rows=5),
}
# What is right on any machine, if slow.
PLAIN = _of_dots(generic(4), rows=2)


def instruction_set(target: CpuTarget) -> InstructionSet:
    """Return what a machine has."""
    return next((SETS[name] for name in SETS if name in target.features), PLAIN)
