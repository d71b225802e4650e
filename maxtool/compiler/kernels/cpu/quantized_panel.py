"""Panels: column blocks of quantized weights that are unpacked once, for many tiles of rows.

A panel has what is multiplied in the order in which it is, and as float32 the scales of the
weights, exactly, and what is added to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import quantized_weights as weights
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.integer_dot import Dot
from maxtool.compiler.kernels.cpu.quantized_activations import Activations
from maxtool.compiler.kernels.cpu.quantized_matrix import QuantizedMatrix
from maxtool.compiler.kernels.cpu.quantized_sums import VectorSums
from maxtool.compiler.kernels.cpu.quantized_weights import Column, Part
from maxtool.compiler.kernels.cpu.tile_dot import TileDot
from maxtool.compiler.quantized_layout import COLUMNS, GROUP, RecordLayout


@dataclass(frozen=True, slots=True)
class Panel:
    """Some neighbouring column blocks of a matrix, unpacked.

    Attributes:
        quants: [k / (4 * neighbours) * parts, bytes] uint8: what a step multiplies of all columns.
        scales: [k / terms, columns] float32.
        minima: The same of what is multiplied with sums of rows; None where nothing is.
    """

    quants: b.Buffer
    scales: b.Buffer
    minima: b.Buffer | None

    @property
    def columns(self) -> int:
        """Columns of all blocks."""
        return int(self.scales.shape[-1])

    def tile(self, rows: Activations, tile: b.Expr) -> b.Buffer:
        """Sums of a tile of rows times all columns, [rows, blocks, columns of a block]."""
        sums = b.scratch((rows.rows, self.columns // COLUMNS, COLUMNS))
        subroutines.call(_multiply_panel, [sums], self, rows, tile)
        return sums


def unpack(matrix: QuantizedMatrix, blocks: Sequence[b.Expr]) -> Panel:
    """Return column blocks of a matrix as a panel."""
    layout, dot, columns = matrix.layout, matrix.dot, len(blocks) * COLUMNS
    steps = b.quotient(matrix.k, GROUP * dot.neighbours) * dot.parts
    scales = b.quotient(matrix.k, layout.terms), columns
    panel = Panel(
        b.workspace((steps, columns * GROUP * dot.neighbours), "uint8"),
        b.workspace(scales),
        b.workspace(scales) if dot.needs_sums(layout) else None,
    )
    subroutines.call(_unpack, [panel], matrix, list(blocks))
    return panel


def _unpack(panel: Panel, matrix: QuantizedMatrix, blocks: Sequence[b.Expr]) -> None:
    """Write column blocks into a panel."""
    layout = matrix.layout
    with T.serial(matrix.spans) as span, T.serial(b.integer(layout.units)) as unit:
        columns = [each for block in blocks for each in matrix.columns(block, span)]
        place = b.index(span * layout.units + unit)
        _unpack_quants(panel, (layout, matrix.dot), columns, (unit, place))
        for number in range(layout.parts):
            part = Part(layout, unit, b.integer(number))
            _unpack_scales(panel, matrix.dot, columns, part, b.index(place * layout.parts + number))


def _unpack_quants(
    panel: Panel,
    form: tuple[RecordLayout, Dot],
    columns: Sequence[Column],
    unit: tuple[b.Index, b.Expr],
) -> None:
    """Write the quants of a unit: its number in the record, and among all."""
    layout, dot = form
    depth, parts = dot.neighbours, dot.parts
    first = b.index(unit[1] * (layout.unit // GROUP))
    for group, quants in weights.steps_of(layout, dot, columns, unit[0]):
        step = b.quotient(first + group, depth) * parts
        for v, value in enumerate(quants):
            lanes = dot.lanes * GROUP * depth
            for piece, vector in enumerate(dot.pieces(value)):
                b.store(panel.quants, vector, (b.index(step + piece), v * lanes), lanes)


def _unpack_scales(
    panel: Panel, dot: Dot, columns: Sequence[Column], part: Part, place: b.Expr
) -> None:
    """Write the scales of terms that share one, and what sums of rows are multiplied with."""
    layout, lanes, shift = part.layout, dot.lanes, dot.shift(part.layout)
    for v, column in enumerate(columns):
        integers = part.scale(column)
        whole = b.let(weights.scale(layout, column))
        scale = whole if integers is None else b.let(whole * integers)
        b.store(panel.scales, scale, (place, v * lanes), lanes)
        if panel.minima is not None:
            added = part.added(column)
            if shift:
                added = added + scale * b.splat(float(shift), lanes)
            b.store(panel.minima, added, (place, v * lanes), lanes)


class TileSums:
    """Integer sums of one instruction, in memory: a tile register has no lanes to be scaled."""

    def __init__(
        self, dot: TileDot, rows: b.Buffer, at: tuple[b.Expr, b.Expr], weights: b.Buffer
    ) -> None:
        """Multiply quants of a tile of rows and of a panel: which terms among all, ``at`` says."""
        self.buffer = b.scratch((dot.rows, dot.lanes), "int32")
        places = (rows, (*at, 0)), (weights, (b.index(at[1] * dot.depth), 0))
        dot.multiply(self.buffer, *places, dot.depth)

    def of(self, r: int, _vector: int) -> b.Expr:
        """The sums of a row: a panel has one vector of columns."""
        return b.load(self.buffer, (r, 0), COLUMNS)


def _multiply_panel(result: b.Buffer, panel: Panel, rows: Activations, tile: b.Expr) -> None:
    """Write the sums of a tile of rows times the columns of a panel."""
    work = _Tile(b.Registers(rows.rows, panel.columns, rows.dot.lanes), panel, rows, tile)
    work.sums.clear()
    if panel.minima is not None:
        work.add_minima(panel.minima)
    with T.serial(rows.spans) as span:
        if rows.layout.span == rows.layout.terms:
            work.add_single(span)
        else:
            work.add_record(span)
    for r, first, width in work.sums.places:
        value = work.sums.get(r, first, width)
        b.store(result, value, (r, first // COLUMNS, first % COLUMNS), width)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The sums of a tile of rows, of all columns of a panel."""

    sums: b.Registers
    panel: Panel
    rows: Activations
    tile: b.Expr

    @property
    def lanes(self) -> int:
        """Columns of a vector."""
        return self.rows.dot.lanes

    @property
    def firsts(self) -> list[int]:
        """The first column of each vector."""
        return list(range(0, self.panel.columns, self.lanes))

    def add_minima(self, minima: b.Buffer) -> None:
        """Add what is multiplied with sums of rows."""
        with T.serial(minima.shape[0]) as part:
            each = [b.let(b.load(minima, (part, first), self.lanes)) for first in self.firsts]
            for r in range(self.rows.rows):
                total = b.let(b.splat(self.rows.sums[self.tile, part, r], self.lanes))
                for first, minimum in zip(self.firsts, each, strict=True):
                    self.sums.add(r, first, self.lanes, total * minimum)

    def add_single(self, span: b.Expr) -> None:
        """Add a record whose terms share a scale."""
        self._add_part(span, self.sums, lambda r: self._row_scale(span, r))

    def add_record(self, span: b.Expr) -> None:
        """Add a record of several scales, and then that of the row."""
        layout = self.rows.layout
        parts = layout.span // layout.terms
        products = b.Registers(self.rows.rows, self.panel.columns, self.lanes)
        products.clear()
        with T.serial(b.integer(parts)) as part:
            self._add_part(b.index(span * parts + part), products, None)
        for r, first, width in self.sums.places:
            value = products.get(r, first, width) * self._row_scale(span, r)
            self.sums.add(r, first, width, value)

    def _row_scale(self, span: b.Expr, r: int) -> b.Expr:
        return b.splat(self.rows.scales[self.tile, span, r], self.lanes)

    def _add_part(
        self, part: b.Expr, sums: b.Registers, factor: Callable[[int], b.Expr] | None
    ) -> None:
        """Add terms that share a scale to sums, times a factor of each row."""
        integers = self._integers(part)
        scales = [
            b.let(b.load(self.panel.scales, (part, first), self.lanes)) for first in self.firsts
        ]
        for r in range(self.rows.rows):
            row = None if factor is None else b.let(factor(r))
            for v, first in enumerate(self.firsts):
                value = T.Cast(b.vector_type("float32", self.lanes), integers.of(r, v)) * scales[v]
                sums.add(r, first, self.lanes, value if row is None else value * row)

    def _integers(self, part: b.Expr) -> VectorSums | TileSums:
        """The sums of products of terms that share a scale."""
        rows, dot, at = self.rows, self.rows.dot, (self.tile, part)
        if isinstance(dot, TileDot):
            return TileSums(dot, rows.quants, at, self.panel.quants)
        sums = VectorSums(dot, rows, at, len(self.firsts))
        steps = rows.layout.terms // (GROUP * dot.depth) * dot.parts
        lanes = self.lanes * GROUP * dot.depth
        # As many steps as there are, but LLVM must not know it: it would write the loop out,
        # reorder it, and run out of registers (a quarter to a third slower with AVX2).
        with T.serial(b.least(self.hidden, steps)) as step:
            place = b.index(part * steps + step)
            quants = [
                b.let(b.load(self.panel.quants, (place, v * lanes), lanes))
                for v in range(len(self.firsts))
            ]
            sums.add_pieces(place, quants)
        return sums

    @property
    def hidden(self) -> b.Expr:
        """A number known at run time only, not below that of the steps that share a scale."""
        return self.rows.quants.shape[1]
