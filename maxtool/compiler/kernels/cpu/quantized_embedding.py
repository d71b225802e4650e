"""Rows of an embedding table of quantized weights, packed so that a tied head shares it."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import quantized_weights as weights
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet
from maxtool.compiler.kernels.cpu.quantized_weights import Column, Part
from maxtool.compiler.quantized_layout import (
    COLUMNS,
    GROUP,
    LANE,
    Plane,
    RecordLayout,
    layout_of,
)
from maxtool.quantization import QuantizationEncoding


@dataclass(frozen=True, slots=True)
class _Cells:
    """Elements of one column of a record, decoded one at a time as the encoding's codec does."""

    layout: RecordLayout
    column: Column
    values: b.Buffer | None  # what the codes stand for, where that is looked up
    starts: dict[str, b.Buffer]  # where the pieces of quants of the first unit are

    def quant(self, unit: b.Expr, group: b.Expr, term: b.Expr) -> b.Expr:
        """The quant less zero of a term of a group of a unit, as float32."""
        code = b.int32(0)
        at = 0
        for plane in self.layout.planes:
            code = code | T.shift_left(self._bits(plane, unit, group, term), b.int32(at))
            at += plane.bits
        if self.values is not None:
            return T.Cast("float32", self.values[T.Cast("int64", code)])
        if self.layout.signed:
            code = code ^ b.int32(self.layout.zero)
        return T.Cast("float32", code - b.int32(self.layout.zero))

    def _bits(self, plane: Plane, unit: b.Expr, group: b.Expr, term: b.Expr) -> b.Expr:
        shared = self.layout.is_shared(plane)
        if shared:
            group = unit * (self.layout.unit // GROUP) + group
        period, run = plane.period // GROUP, plane.run // LANE
        vector = b.quotient(group, period) * run + b.remainder(group, run)
        shift = b.quotient(b.remainder(group, period), run) * plane.bits
        start = self.starts[plane.field][vector] + (0 if shared else unit * self.layout.stride)
        place = start + self.column.first * LANE + term
        byte = T.Cast("int32", self.column.w[(*self.column.record, place)])
        return T.shift_right(byte, T.Cast("int32", shift)) & b.int32((1 << plane.bits) - 1)

    def scale(self, part: Part) -> b.Expr:
        """The scale of terms that share it."""
        scale, integer = weights.scale(self.layout, self.column), part.scale(self.column)
        return scale if integer is None else scale * integer

    def minimum(self, part: Part) -> b.Expr | None:
        """Return what is added to their products."""
        if self.layout.has("m"):
            return weights.half(self.layout, self.column, "m")
        if not self.layout.has("dmin"):
            return None
        least = weights.half(self.layout, self.column, "dmin") * part.minimum(self.column)
        return T.float32(0) - least


def quantized_embedding(
    _machine: InstructionSet, encoding: str, vocab: int, dim: int
) -> b.PrimFunc:
    """Build the lookup.

    Parameters of the kernel: ids[rows] int64, w uint8 of ``quantized_shape``, y[rows, dim] float32.
    An id below 0 or beyond the vocabulary reads the first or last row. Elements are those that
    ``maxtool.quantization.dequantize`` gives.
    """
    layout = layout_of(QuantizationEncoding[encoding])
    shape = (-(-vocab // COLUMNS), dim // layout.span, layout.nbytes)
    with b.kernel(f"quantized_embedding_{vocab}_{dim}_{encoding.lower()}") as kernel:
        rows = kernel.dim("rows")
        ids = kernel.argument("ids", (rows,), "int64")
        w = kernel.argument("w", shape, "uint8")
        y = kernel.argument("y", (rows, dim))

        def row(i: b.Expr) -> None:
            row_index = b.index(b.clamped(ids[i], vocab))
            block = b.index(b.quotient(row_index, COLUMNS))
            column = b.index(b.remainder(row_index, COLUMNS))
            values, starts = _values(layout), _starts(layout)
            with T.serial(b.integer(shape[1])) as span:
                cells = _Cells(layout, Column(w, (block, span), column, 1), values, starts)
                _decode(cells, y, i, b.index(span * layout.span))

        b.each_row(rows, dim, row)
    return kernel.function


def _values(layout: RecordLayout) -> b.Buffer | None:
    """The table of what codes stand for, if there is one."""
    if layout.values is None:
        return None
    values = b.scratch((len(layout.values),), "int8")
    for code, value in enumerate(layout.values):
        b.store(values, tirx.const(value, "int8"), (code,))
    return values


def _starts(layout: RecordLayout) -> dict[str, b.Buffer]:
    """Tables of the first bytes of the pieces of each plane, of one unit or of all that share."""
    starts = {}
    for plane in layout.planes:
        places = layout.starts[plane.field]
        starts[plane.field] = b.scratch((len(places),), "int64")
        for piece, place in enumerate(places):
            b.store(starts[plane.field], b.integer(place), (piece,))
    return starts


def _decode(cells: _Cells, y: b.Buffer, row: b.Expr, start: b.Expr) -> None:
    """Write the terms of a record to a row of y."""
    layout = cells.layout
    groups = layout.terms // GROUP
    with T.serial(b.integer(layout.units)) as unit, T.serial(b.integer(layout.parts)) as number:
        part = Part(layout, unit, number)
        scale = b.let(cells.scale(part))
        minimum = cells.minimum(part)
        minimum = None if minimum is None else b.let(minimum)
        with T.serial(b.integer(groups)) as i, T.serial(b.integer(GROUP)) as term:
            group = b.index(number * groups + i)
            value = cells.quant(unit, group, term) * scale
            value = value if minimum is None else value + minimum
            place = start + unit * layout.unit + group * GROUP + term
            b.store(y, value, (row, place))
