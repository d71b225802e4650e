"""Sums of products of quantized weights and a tile of rows: integers while terms share a scale.

Those of a record that is multiplied as it is unpacked are then added as float32, and multiplied by
the scales of both sides last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import quantized_weights as weights
from maxtool.compiler.kernels.cpu.fetch_ahead import AHEAD, BURST, LINE
from maxtool.compiler.kernels.cpu.integer_dot import IntegerDot
from maxtool.compiler.kernels.cpu.quantized_activations import Activations
from maxtool.compiler.kernels.cpu.quantized_weights import Column, Part
from maxtool.compiler.quantized_layout import COLUMNS, GROUP, RecordLayout


class VectorSums:
    """Integer sums of terms that share a scale, of a tile of rows and some vectors of columns.

    Rows that are multiplied at once share a vector.
    """

    def __init__(
        self, dot: IntegerDot, rows: Activations, at: tuple[b.Expr, b.Expr], vectors: int
    ) -> None:
        """Begin where the zero of the weights is taken off.

        ``at`` says which tile of ``rows`` it is, and which terms among all.
        """
        self.dot, self.rows, self.tile = dot, rows, at[0]
        dtype, _, lanes = dot.sum_type.partition("x")
        self.lanes = int(lanes)
        self.firsts = range(0, rows.rows, dot.rows)
        self.buffer = b.scratch((len(self.firsts), vectors, self.lanes), dtype)
        for number, r in enumerate(self.firsts):
            start = b.let(dot.start(rows.first_bits(*at, r)))
            for v in range(vectors):
                b.store(self.buffer, start, (number, v, 0), self.lanes)

    def add(self, step: b.Expr, quants: Sequence[b.Expr]) -> None:
        """Add the terms of a step of all rows and columns.

        Weights stay in registers while rows pass; or rows, where few vectors hold those of all.
        """
        if self.dot.rows > 1:
            operands = [self._operand(step, r) for r in self.firsts]
            for v, quant in enumerate(quants):
                for at, operand in enumerate(operands):
                    self._multiply(at, v, quant, operand)
            return
        for at, r in enumerate(self.firsts):
            operand = self._operand(step, r)
            for v, quant in enumerate(quants):
                self._multiply(at, v, quant, operand)

    def add_pieces(self, step: b.Expr, pieces: Sequence[b.Expr]) -> None:
        """Add what a step of a panel holds: one of the vectors that terms of a column take.

        Two of each at once are more than the registers of AVX2 hold.
        """
        if self.dot.parts == 1:
            self.add(step, pieces)
            return
        for at, r in enumerate(self.firsts):
            operand = b.let(self.rows.quants[self.tile, step, r])
            for v, piece in enumerate(pieces):
                here = b.load(self.buffer, (at, v, 0), self.lanes)
                total = self.dot.add_piece(here, piece, operand)
                b.store(self.buffer, total, (at, v, 0), self.lanes)

    def _operand(self, step: b.Expr, row: int) -> list[b.Expr]:
        return [b.let(part) for part in self.rows.operand(self.tile, step, row)]

    def _multiply(self, at: int, v: int, quant: b.Expr, operand: list[b.Expr]) -> None:
        here = b.load(self.buffer, (at, v, 0), self.lanes)
        b.store(self.buffer, self.dot.add(here, quant, operand), (at, v, 0), self.lanes)

    def of(self, r: int, v: int) -> b.Expr:
        """The sums of a row as int32, one for each column of a vector."""
        at, row = divmod(r, self.dot.rows)
        return self.dot.total(b.load(self.buffer, (at, v, 0), self.lanes), row)


@dataclass(frozen=True, slots=True)
class Span:
    """One record of some columns times the same terms of a tile of rows."""

    layout: RecordLayout
    dot: IntegerDot
    rows: Activations
    tile: b.Expr
    span: b.Expr
    columns: Sequence[Column]

    @property
    def places(self) -> list[tuple[int, int]]:
        """``(row, vector of columns)`` of all sums."""
        return [(r, v) for r in range(self.rows.rows) for v in range(len(self.columns))]

    def place_of(self, part: Part) -> b.Expr:
        """The number of terms that share a scale, among all of a row."""
        return b.index(self.span * (self.layout.span // self.layout.terms) + part.place)

    def row_sum(self, place: b.Expr, r: int) -> b.Expr:
        """The sum of a row's quants of such terms."""
        return self.rows.sums[self.tile, place, r]

    def add_unpacking(self, sums: b.Registers, *, fetches: bool = False) -> None:
        """Add the record's terms, unpacked one unit after the other.

        With ``fetches``, what will be read a little later is fetched meanwhile.
        """
        layout, dot = self.layout, self.dot
        total = _Scaled(self)
        with T.serial(b.integer(layout.units)) as unit:
            parts = [_PartSums(self, Part(layout, unit, number)) for number in range(layout.parts)]
            missing = [layout.terms // GROUP] * layout.parts
            first = b.index((self.span * layout.units + unit) * (layout.unit // GROUP))
            steps = weights.groups_of(layout, dot, self.columns, unit)
            for step, (group, quants) in enumerate(steps):
                if fetches:
                    self._fetch(unit, step)
                number = group * GROUP // layout.terms
                parts[number].integers.add(b.index(first + group), quants)
                missing[number] -= 1
                if not missing[number]:
                    total.add(parts[number])
        total.finish(sums)

    def _fetch(self, unit: b.Expr, step: int) -> None:
        """Fetch the bytes of some steps of a unit, ahead, in the order of their addresses.

        Fields and units are read in another order, of which the processor makes nothing. Of lines
        that units share some are not fetched, which costs less than to fetch them twice.
        """
        each, steps = self.layout.nbytes // self.layout.units, self.layout.unit // GROUP
        lines = each // LINE
        if step % BURST == 0:
            end = min(step + BURST, steps)
            for line in range(step * lines // steps, end * lines // steps):
                self.columns[0].fetch(b.index(unit * each + line * each // lines + AHEAD))


class _PartSums:
    """Sums of the terms of a record that share a scale."""

    def __init__(self, span: Span, part: Part) -> None:
        self.span, self.part = span, part
        self.place = span.place_of(part)
        at, vectors = (span.tile, self.place), len(span.columns)
        self.integers = VectorSums(span.dot, span.rows, at, vectors)

    def total(self, r: int, v: int) -> b.Expr:
        """The sums of a row as float32, one for each column."""
        value = T.Cast(b.vector_type("float32", self.span.dot.lanes), self.integers.of(r, v))
        shift = self.span.dot.shift(self.span.layout)
        if shift:
            value = value + b.splat(self.row_sum(r) * T.float32(shift), self.span.dot.lanes)
        return value

    def row_sum(self, r: int) -> b.Expr:
        """The sum of a row's quants."""
        return self.span.row_sum(self.place, r)


class _Scaled:
    """Float sums of a record: integer ones times integer scales, less sums times minima."""

    def __init__(self, span: Span) -> None:
        self.span, self.layout = span, span.layout
        self.lanes = span.dot.lanes
        self.products = self._zeros()

    def _zeros(self) -> b.Buffer:
        zeros = b.scratch((self.span.rows.rows, len(self.span.columns), self.lanes))
        for r, v in self.span.places:
            b.store(zeros, b.splat(0.0, self.lanes), (r, v, 0), self.lanes)
        return zeros

    def add(self, sums: _PartSums) -> None:
        """Add the terms that share a scale."""
        scales = [sums.part.scale(column) for column in self.span.columns]
        for r, v in self.span.places:
            value = sums.total(r, v)
            self._add(self.products, r, v, value if scales[v] is None else value * scales[v])
        self.last = sums

    def _add(self, buffer: b.Buffer, r: int, v: int, value: b.Expr) -> None:
        b.store(buffer, b.load(buffer, (r, v, 0), self.lanes) + value, (r, v, 0), self.lanes)

    def finish(self, sums: b.Registers) -> None:
        """Multiply by the scales of both sides, and add to sums [rows, columns]."""
        scales = [b.let(weights.scale(self.layout, column)) for column in self.span.columns]
        self._add_to(sums, self.products, scales)
        if self.layout.has("m"):
            self._add_to(sums, None, self._halves("m", 1.0))
        if self.layout.has("dmin"):
            self._add_to(sums, self._minima(), self._halves("dmin", -1.0))

    def _halves(self, name: str, sign: float) -> list[b.Expr]:
        """Factors of minima, or of the sums of rows."""
        each = (weights.half(self.layout, column, name) for column in self.span.columns)
        return [b.let(value * b.splat(sign, self.lanes)) for value in each]

    def _minima(self) -> b.Buffer:
        """Sums of rows times minima, one term for each scale.

        They follow the products, as the registers do not hold both.
        """
        layout, minima = self.layout, self._zeros()
        with T.serial(b.integer(layout.units)) as unit, T.serial(b.integer(layout.parts)) as number:
            part = Part(layout, unit, number)
            place = self.span.place_of(part)
            each = [part.minimum(column) for column in self.span.columns]
            for r, v in self.span.places:
                total = b.splat(self.span.row_sum(place, r), self.lanes)
                self._add(minima, r, v, total * each[v])
        return minima

    def _add_to(
        self, sums: b.Registers, buffer: b.Buffer | None, factors: Sequence[b.Expr]
    ) -> None:
        """Add what is in a buffer, or else the sums of the rows, times factors of columns."""
        columns, rows = self.span.columns, self.span.rows
        for r, v in self.span.places:
            if buffer is None:
                value = b.splat(self.last.row_sum(r), self.lanes)
            else:
                value = b.load(buffer, (r, v, 0), self.lanes)
            scale = b.splat(rows.scales[self.span.tile, self.span.span, r], self.lanes)
            row, offset = divmod(r * len(columns) * self.lanes + v * self.lanes, COLUMNS)
            sums.add(row, offset, self.lanes, value * factors[v] * scale)
