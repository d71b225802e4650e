"""Packed quantized weights as kernels read them: vectors of bytes, and of scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.integer_dot import Dot
from maxtool.compiler.quantized_layout import (
    COLUMNS,
    GROUP,
    LANE,
    Plane,
    RecordLayout,
)

# Bits of the exponent of a float32, and twice the smallest scale of MXFP4, which is subnormal.
MANTISSA = 23
HALF_LEAST = 0x00200000


@dataclass(frozen=True, slots=True)
class Column:
    """Some neighbouring columns of a record of a packed weight.

    Attributes:
        w: The weight.
        record: The index of the record.
        first: The first column.
        count: How many there are: int32 lanes of a vector.
    """

    w: b.Buffer
    record: tuple[b.Index, ...]
    first: b.Index
    count: int

    def read(self, offset: b.Index, dtype: str, size: int) -> b.Expr:
        """Items of the columns, of ``size`` bytes each, that begin at an offset of the record."""
        value = b.load(self.w, (*self.record, offset + self.first * size), self.count * size)
        return T.reinterpret(b.vector_type(dtype, self.count * size // _bytes(dtype)), value)

    def fetch(self, offset: b.Index) -> None:
        """Fetch a cache line of this record, or of one behind it, which need not exist."""
        b.prefetch(self.w, (*self.record, offset), level=1)


def _bytes(dtype: str) -> int:
    return {"uint8": 1, "int8": 1, "float16": 2}[dtype]


def lanes_of(value: b.Expr) -> int:
    """Elements of a vector."""
    return int(str(value.ty).partition("x")[2] or 1)


class Quants:
    """Groups of 4 terms of some columns of one unit, unpacked one after the other.

    ``unit`` is its number in the record. Bytes that groups share are loaded once.
    """

    def __init__(self, layout: RecordLayout, column: Column, unit: b.Index) -> None:
        self.layout, self.column, self.unit = layout, column, unit
        self.loaded: dict[tuple[str, int], b.Expr] = {}

    def group(self, group: int) -> b.Expr:
        """Quants of a group, as unsigned bytes; as int8 if the layout is of signed ones."""
        value, at = None, 0
        for plane in self.layout.planes:
            bits = self._bits(plane, group, at)
            value = bits if value is None else value | bits
            at += plane.bits
        return value

    def _bits(self, plane: Plane, group: int, at: int) -> b.Expr:
        """The bits of a plane, moved to bit ``at`` of each byte."""
        value = self._vector(plane, group)
        if plane.bits == 8:
            return value
        shift = plane.shift(group) - at
        if self.layout.is_shared(plane):  # what the unit adds is known at run time only
            each = plane.shift(self.layout.unit // GROUP)
            value = _moved(value, T.Cast("uint16", self.unit * each))
        return _masked(_moved(value, shift), ((1 << plane.bits) - 1) << at)

    def _vector(self, plane: Plane, group: int) -> b.Expr:
        """The vector of a plane in which a group is."""
        key = (plane.field, plane.vector(group))
        if key not in self.loaded:
            start = self.layout.starts[key[0]][key[1]]
            each = 0 if self.layout.is_shared(plane) else self.layout.stride
            value = self.column.read(self.unit * each + start, "uint8", LANE)
            self.loaded[key] = b.let(value)
        return self.loaded[key]


def _moved(value: b.Expr, shift: b.Expr | int) -> b.Expr:
    """Bytes shifted right, or left by a negative number; bits of a neighbour come in.

    They are shifted by twos, as processors have no shift of bytes.
    """
    lanes = lanes_of(value)
    if isinstance(shift, int) and shift == 0:
        return value
    change = T.shift_right
    if isinstance(shift, int):
        change = T.shift_right if shift > 0 else T.shift_left
        shift = tirx.const(abs(shift), "uint16")
    pairs = _pairs(value, lanes)
    return _bytes_of(change(pairs, b.splat(shift, max(1, lanes // 2))), lanes)


def _pairs(value: b.Expr, lanes: int) -> b.Expr:
    """Bytes by twos; a single one is widened."""
    if lanes == 1:
        return T.Cast("uint16", value)
    return T.reinterpret(b.vector_type("uint16", lanes // 2), value)


def _bytes_of(pairs: b.Expr, lanes: int) -> b.Expr:
    """Undo ``_pairs``."""
    if lanes == 1:
        return T.Cast("uint8", pairs)
    return T.reinterpret(b.vector_type("uint8", lanes), pairs)


def _masked(value: b.Expr, mask: int) -> b.Expr:
    return value & b.splat(tirx.const(mask, "uint8"), lanes_of(value))


def groups_of(
    layout: RecordLayout, dot: Dot, columns: Sequence[Column], unit: b.Index
) -> Iterator[tuple[int, list[b.Expr]]]:
    """Each group of a unit in order, and its quants in all columns as ``dot`` wants them."""
    quants = [Quants(layout, column, unit) for column in columns]
    for group in layout.order:
        yield group, [b.let(_as_operand(each.group(group), layout, dot)) for each in quants]


def steps_of(
    layout: RecordLayout, dot: Dot, columns: Sequence[Column], unit: b.Index
) -> Iterator[tuple[int, list[b.Expr]]]:
    """Groups of a unit that are multiplied at once, joined: the number of the first, and quants."""
    waiting: dict[int, list[b.Expr]] = {}
    for group, quants in groups_of(layout, dot, columns, unit):
        waiting[group] = quants
        first = group - group % dot.neighbours
        together = [waiting.get(first + at) for at in range(dot.neighbours)]
        if all(each is not None for each in together):
            yield first, [_joined(list(own)) for own in zip(*together, strict=True)]


def _joined(groups: list[b.Expr]) -> b.Expr:
    """Weights of several groups, of which those of a column become neighbours."""
    if len(groups) == 1:
        return groups[0]
    lanes = lanes_of(groups[0]) // GROUP
    words = [T.reinterpret(b.vector_type("int32", lanes), each) for each in groups]
    places = [g * lanes + lane for lane in range(lanes) for g in range(len(groups))]
    both = tirx.Shuffle([b.let(each) for each in words], places)
    return T.reinterpret(b.vector_type("uint8", GROUP * len(places)), both)


def _as_operand(quants: b.Expr, layout: RecordLayout, dot: Dot) -> b.Expr:
    """Quants as bytes that are multiplied: looked up, or without a sign."""
    if layout.values is not None:
        return dot.look_up(quants, [(value + dot.zero(layout)) & 0xFF for value in layout.values])
    zero = b.splat(tirx.const(dot.middle(layout), "uint8"), lanes_of(quants))
    if layout.signed:
        return quants if dot.signed else quants ^ zero
    return quants - zero if dot.centred else quants


def scale(layout: RecordLayout, column: Column) -> b.Expr:
    """The float32 scale of each column of a record."""
    if layout.has("d"):
        return half(layout, column, "d")
    exponent = T.Cast(
        b.vector_type("int32", column.count), column.read(layout.starts["e"][0], "uint8", 1)
    )
    return T.reinterpret(
        b.vector_type("float32", column.count), _power_bits(b.let(exponent), column.count)
    )


def _power_bits(exponent: b.Expr, lanes: int) -> b.Expr:
    """Bits of the float32 ``2 ** (exponent - 128)``; the two least are subnormal."""

    def each(value: int) -> b.Expr:
        return b.splat(b.int32(value), lanes)

    normal = T.shift_left(exponent - each(1), each(MANTISSA))
    least = T.shift_left(each(HALF_LEAST), T.min(exponent, each(1)))
    return T.Select(exponent < each(2), least, normal)


def half(layout: RecordLayout, column: Column, name: str) -> b.Expr:
    """A float16 of each column, as float32."""
    value = column.read(layout.starts[name][0], "float16", 2)
    return T.Cast(b.vector_type("float32", column.count), value)


@dataclass(frozen=True, slots=True)
class Part:
    """Terms of a unit that share a scale: which unit, and which of its scales."""

    layout: RecordLayout
    unit: b.Index
    number: b.Index

    @property
    def place(self) -> b.Expr:
        """Number of the terms in the record."""
        return self.unit * self.layout.parts + self.number

    def scale(self, column: Column) -> b.Expr | None:
        """Integer scales, in float32; None if the encoding has none."""
        if not self.layout.has("scales"):
            return None
        value = self._read(column, "scales")
        if self.layout.has("dmin") and not self.layout.has("minima"):  # they are the upper bits
            value = _masked(value, 15)
        return _as_float(value)

    def minimum(self, column: Column) -> b.Expr | None:
        """Integer minima, in float32; None where there is one for the record, or none."""
        if self.layout.has("minima"):
            return _as_float(self._read(column, "minima"))
        if self.layout.has("dmin"):
            return _as_float(_masked(_moved(self._read(column, "scales"), 4), 15))
        return None

    def added(self, column: Column) -> b.Expr:
        """Return what is added to all weights, in float32, where an encoding has it."""
        minimum = self.minimum(column)
        if minimum is None:
            return half(self.layout, column, "m")
        return half(self.layout, column, "dmin") * minimum * b.splat(-1.0, column.count)

    def _read(self, column: Column, name: str) -> b.Expr:
        at = self.unit * self.layout.stride + self.number * COLUMNS
        return column.read(at + self.layout.starts[name][0], self.layout.dtype(name), 1)


def _as_float(value: b.Expr) -> b.Expr:
    lanes = lanes_of(value)
    wide = T.Cast(b.vector_type("int32", lanes), value)
    return b.let(T.Cast(b.vector_type("float32", lanes), wide))
