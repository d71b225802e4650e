"""x @ w.T + bias with quantized weights: products of integers, scaled once for several terms.

A few rows read each weight as it is, and unpack it in registers. For many a block of 16 columns is
unpacked once into bytes (a panel), and all row tiles walk it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import quantized_weights as weights
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet, IntegerDot
from maxtool.compiler.kernels.cpu.quantized_activations import Activations, quantize_tile
from maxtool.compiler.kernels.cpu.quantized_weights import Column, Part
from maxtool.compiler.quantized_layout import COLUMNS, GROUP, VECTOR, RecordLayout, layout_of
from maxtool.quantization import QuantizationEncoding

# Row tiles that one task multiplies with a panel: unpacking it costs as much as one or two.
TILES_PER_TASK = 32
# Low tiles that unpack the same weights, at most.
LOW_TILES = 2

# Quantized rows, the first of their tiles to take, and how many.
Tiles: TypeAlias = tuple[Activations, b.Expr, b.Expr]
# Takes sums [rows of a tile, columns], a tile counted from the first, and a row of it.
Store: TypeAlias = Callable[[b.Buffer, b.Expr, b.Expr], None]
# Tiles, a column block, and what its sums are handed to.
Multiply: TypeAlias = Callable[[Tiles, b.Expr, Store], None]

# Column blocks that a task for one row reads side by side, if units have so few scales that the
# sums for each fit the registers twice.
STREAMS = 2
FEW_PARTS = 2


@dataclass(frozen=True, slots=True)
class QuantizedProduct:
    """The buffers and sizes of a product while it is built."""

    machine: InstructionSet
    layout: RecordLayout
    n: b.Expr
    k: b.Expr
    x: b.Buffer
    w: b.Buffer
    bias: b.Buffer | None
    y: b.Buffer
    expert: tuple[b.Expr, ...] = ()

    @property
    def dot(self) -> IntegerDot:
        """Return the way weights and activations are multiplied."""
        return self.machine.dot(self.layout)

    @property
    def spans(self) -> b.Expr:
        """Records of a column block."""
        return self.w.shape[-2]

    @property
    def blocks(self) -> b.Expr:
        """Column blocks."""
        return self.w.shape[-3]

    @property
    def streams(self) -> int:
        """Column blocks that a task for one row reads side by side."""
        return STREAMS if self.layout.parts <= FEW_PARTS else 1

    def columns(self, block: b.Expr, span: b.Index) -> list[Column]:
        """The vectors of columns of a record."""
        lanes = self.dot.lanes
        places = range(0, COLUMNS, lanes)
        return [Column(self.w, (*self.expert, block, span), at, lanes) for at in places]

    def activations(self, tiles: b.Expr, rows: int) -> Activations:
        """Memory for quantized rows."""
        return Activations.of(self.layout, self.dot, tiles, rows, self.k)

    def quantize(self, to: Activations, tile: b.Expr, rows: Sequence[b.Expr]) -> None:
        """Quantize rows of x into a tile."""
        quantize_tile(to, self.x, tile, [(row,) for row in rows], self.machine.floats)

    def one_row(self) -> None:
        """A few column blocks a task, whose weights are streams that the CPU fetches ahead."""
        first, streams = b.integer(0), self.streams
        row = self.activations(b.integer(1), 1)
        self.quantize(row, first, [first])
        stride = T.Bind(b.ceildiv(self.blocks, streams))

        def blocks(i: b.Expr) -> None:
            last = self.blocks - 1
            these = [b.index(b.least(i + stream * stride, last)) for stream in range(streams)]
            self.row_blocks(row, first, these, first)

        b.each_row(stride, streams * COLUMNS * self.k, blocks)

    def row_blocks(
        self, row: Activations, tile: b.Expr, blocks: Sequence[b.Expr], target: b.Expr
    ) -> None:
        """A tile of one row times column blocks, into a row of y."""
        lanes = self.dot.lanes
        sums = b.Registers(len(blocks), COLUMNS, lanes)
        sums.clear()
        with T.serial(self.spans) as span:
            columns = [column for block in blocks for column in self.columns(block, span)]
            record = _Span(self, row, tile, span, columns)
            record.add_unpacking(sums)
        for stream, block in enumerate(blocks):
            self.store_row(sums.buffer, (stream,), block, target)

    def several_rows(self, rows: b.Expr) -> None:
        """Products by low tiles of a few rows, or by tiles that share a panel."""
        few = self.machine.few_rows
        b.either(
            rows <= LOW_TILES * few,
            lambda: self.many_rows(rows, few, self.multiply_low_tiles),
            lambda: self.many_rows(rows, self.machine.rows, self.multiply_tiles),
        )

    def many_rows(self, rows: b.Expr, height: int, multiply_tiles: Multiply) -> None:
        """Quantize x by tiles, then multiply them by column blocks on all threads."""
        tiles = T.Bind(b.ceildiv(rows, height))
        quantized = self.activations(tiles, height)

        def quantize(t: b.Expr) -> None:
            sources = [b.index(b.least(t * height + r, rows - 1)) for r in range(height)]
            self.quantize(quantized, t, sources)

        b.each(tiles, quantize, threads=True)
        chunks = T.Bind(b.ceildiv(tiles, TILES_PER_TASK))

        def multiply(i: b.Expr) -> None:
            block = b.index(b.quotient(i, chunks))
            first = b.index(b.remainder(i, chunks) * TILES_PER_TASK)
            count = b.index(b.least(tiles - first, TILES_PER_TASK))

            def store(sums: b.Buffer, t: b.Expr, r: b.Expr) -> None:
                row = b.index((first + t) * height + r)
                with b.when(row < rows):
                    self.store_row(sums, (r,), block, row)

            multiply_tiles((quantized, first, count), block, store)

        b.each(T.Bind(chunks * self.blocks), multiply, threads=True)

    def multiply_tiles(self, tiles: Tiles, block: b.Expr, store: Store) -> None:
        """Multiply some tiles by a column block, which is unpacked before."""
        rows, first, count = tiles
        panel = self.unpack(block)
        with T.serial(count) as t:
            sums = self.tile(rows, b.index(first + t), block, panel)
            with T.serial(b.integer(rows.rows)) as r:
                store(sums.buffer, t, r)

    def multiply_low_tiles(self, tiles: Tiles, block: b.Expr, store: Store) -> None:
        """Multiply some tiles by a column block, unpacked in registers for each of them."""
        rows, first, count = tiles
        with T.serial(count) as t:
            sums = self.tile(rows, b.index(first + t), block, None)
            with T.serial(b.integer(rows.rows)) as r:
                store(sums.buffer, t, r)

    def unpack(self, block: b.Expr) -> b.Buffer:
        """A column block as bytes that are multiplied, [k / 4, 16 columns x 4 terms]."""
        panel = b.workspace((b.quotient(self.k, GROUP), VECTOR), "uint8")
        count, groups = self.layout.units, self.layout.unit // GROUP
        with T.serial(self.spans) as span, T.serial(b.integer(count)) as unit:
            first = b.index((span * count + unit) * groups)
            columns = self.columns(block, span)
            for group, quants in weights.groups_of(self.layout, self.dot, columns, unit):
                for column, value in zip(columns, quants, strict=True):
                    lanes = column.count * GROUP
                    b.store(panel, value, (first + group, column.first * GROUP), lanes)
        return panel

    def tile(
        self, rows: Activations, tile: b.Expr, block: b.Expr, panel: b.Buffer | None
    ) -> b.Registers:
        """Sums of a tile of rows times a column block, unpacked into a panel or not yet."""
        sums = b.Registers(rows.rows, COLUMNS, self.dot.lanes)
        sums.clear()
        with T.serial(self.spans) as span:
            record = _Span(self, rows, tile, span, self.columns(block, span))
            if panel is None:
                record.add_unpacking(sums)
            else:
                record.add_panel(sums, panel)
        return sums

    def store_row(self, sums: b.Buffer, at: tuple[b.Index, ...], j: b.Expr, row: b.Expr) -> None:
        """Write one row of a column block to y, without what the last block has beyond n."""
        base = b.index(j * COLUMNS)

        def copy(offset: b.Index, width: int) -> None:
            value = b.load(sums, (*at, offset), width)
            if self.bias is not None:
                value = value + b.load(self.bias, (base + offset,), width)
            b.store(self.y, value, (row, base + offset), width)

        def whole() -> None:
            for offset, width in b.widths(COLUMNS, self.dot.lanes):
                copy(offset, width)

        def rest() -> None:
            with T.serial(self.n - base) as column:
                copy(column, 1)

        b.either(base + COLUMNS <= self.n, whole, rest)


@dataclass(frozen=True, slots=True)
class _Span:
    """One record of some columns times the same terms of a tile of rows."""

    product: QuantizedProduct
    rows: Activations
    tile: b.Expr
    span: b.Expr
    columns: Sequence[Column]

    @property
    def places(self) -> list[tuple[int, int]]:
        """``(row, vector of columns)`` of all sums."""
        return [(r, v) for r in range(self.rows.rows) for v in range(len(self.columns))]

    def add_unpacking(self, sums: b.Registers) -> None:
        """Add the record's terms, unpacked one unit after the other."""
        layout, dot = self.product.layout, self.product.dot
        total = _Scaled(self)
        with T.serial(b.integer(layout.units)) as unit:
            parts = [_Sums(self, Part(layout, unit, number)) for number in range(layout.parts)]
            missing = [layout.terms // GROUP] * layout.parts
            first = b.index((self.span * layout.units + unit) * (layout.unit // GROUP))
            for group, quants in weights.groups_of(layout, dot, self.columns, unit):
                number = group * GROUP // layout.terms
                parts[number].add(b.index(first + group), quants)
                missing[number] -= 1
                if not missing[number]:
                    total.add(parts[number])
        total.finish(sums)

    def add_panel(self, sums: b.Registers, panel: b.Buffer) -> None:
        """Add the record's terms, unpacked before."""
        layout = self.product.layout
        total = _Scaled(self)
        groups = layout.terms // GROUP
        with T.serial(b.integer(layout.units)) as unit, T.serial(b.integer(layout.parts)) as number:
            integers = _Sums(self, Part(layout, unit, number))
            first = b.index(integers.place * groups)
            # As many groups as there are, but LLVM must not know it: it would write the loop out,
            # reorder it, and run out of registers (a quarter to a third slower with AVX2).
            with T.serial(b.least(self.product.k, groups)) as group:
                place = b.index(first + group)
                quants = [
                    b.let(b.load(panel, (place, column.first * GROUP), column.count * GROUP))
                    for column in self.columns
                ]
                integers.add(place, quants)
            total.add(integers)
        total.finish(sums)


class _Sums:
    """Integer sums of the terms of a record that share a scale."""

    def __init__(self, span: _Span, part: Part) -> None:
        layout, dot = span.product.layout, span.product.dot
        self.span, self.part, self.dot = span, part, dot
        self.place = b.index(span.span * (layout.span // layout.terms) + part.place)
        dtype, _, lanes = dot.sum_type.partition("x")
        self.lanes = int(lanes)
        shape = (span.rows.rows, len(span.columns), self.lanes)
        self.buffer = b.scratch(shape, dtype)
        for r, v in span.places:
            start = span.rows.start(span.tile, self.place, r)
            b.store(self.buffer, start, (r, v, 0), self.lanes)

    def add(self, group: b.Expr, quants: Sequence[b.Expr]) -> None:
        """Add four terms of all rows and columns."""
        for r in range(self.span.rows.rows):
            operand = [b.let(part) for part in self.span.rows.operand(self.span.tile, group, r)]
            for v, quant in enumerate(quants):
                here = b.load(self.buffer, (r, v, 0), self.lanes)
                b.store(self.buffer, self.dot.add(here, quant, operand), (r, v, 0), self.lanes)

    def total(self, r: int, v: int) -> b.Expr:
        """The sums of a row as float32, one for each column."""
        whole = self.dot.total(b.load(self.buffer, (r, v, 0), self.lanes))
        value = T.Cast(b.vector_type("float32", self.dot.lanes), whole)
        shift = self.dot.shift(self.span.product.layout)
        if shift:
            value = value + b.splat(self.row_sum(r) * T.float32(shift), self.dot.lanes)
        return value

    def row_sum(self, r: int) -> b.Expr:
        """The sum of a row's quants."""
        return self.span.rows.sums[self.span.tile, self.place, r]


class _Scaled:
    """Float sums of a record: integer ones times integer scales, less sums times minima."""

    def __init__(self, span: _Span) -> None:
        self.span, self.layout = span, span.product.layout
        self.lanes = span.product.dot.lanes
        shape = (span.rows.rows, len(span.columns), self.lanes)
        self.products = b.scratch(shape)
        self.minima = b.scratch(shape) if self.layout.has("dmin") else None
        for r, v in span.places:
            for buffer in (self.products, self.minima):
                if buffer is not None:
                    b.store(buffer, b.splat(0.0, self.lanes), (r, v, 0), self.lanes)

    def add(self, sums: _Sums) -> None:
        """Add the terms that share a scale."""
        columns = self.span.columns
        scales = [sums.part.scale(column) for column in columns]
        minima = [sums.part.minimum(column) for column in columns]
        for r, v in self.span.places:
            value = sums.total(r, v)
            self._add(self.products, r, v, value if scales[v] is None else value * scales[v])
            if self.minima is not None:
                total = b.splat(sums.row_sum(r), self.lanes)
                self._add(self.minima, r, v, total * minima[v])
        self.last = sums

    def _add(self, buffer: b.Buffer, r: int, v: int, value: b.Expr) -> None:
        b.store(buffer, b.load(buffer, (r, v, 0), self.lanes) + value, (r, v, 0), self.lanes)

    def finish(self, sums: b.Registers) -> None:
        """Multiply by the scales of both sides, and add to sums [rows or streams, columns]."""
        columns, rows = self.span.columns, self.span.rows
        scales = [b.let(weights.scale(self.layout, column)) for column in columns]
        least = self._least()
        for r, v in self.span.places:
            value = b.load(self.products, (r, v, 0), self.lanes) * scales[v]
            if least is not None:
                value = value + least[v] * self._of_minima(r, v)
            scale = b.splat(rows.scales[self.span.tile, self.span.span, r], self.lanes)
            row, offset = divmod(r * len(columns) * self.lanes + v * self.lanes, COLUMNS)
            sums.add(row, offset, self.lanes, value * scale)

    def _least(self) -> list[b.Expr] | None:
        """Factors of the minima, or of the sums of rows."""
        names = [name for name in ("m", "dmin") if self.layout.has(name)]
        if not names:
            return None
        sign = 1.0 if names[0] == "m" else -1.0
        each = (weights.half(self.layout, column, names[0]) for column in self.span.columns)
        return [b.let(value * b.splat(sign, self.lanes)) for value in each]

    def _of_minima(self, r: int, v: int) -> b.Expr:
        if self.minima is None:
            return b.splat(self.last.row_sum(r), self.lanes)
        return b.load(self.minima, (r, v, 0), self.lanes)


def quantized_linear(machine: InstructionSet, encoding: str, bias: bool = False) -> b.PrimFunc:
    """Build ``y = x @ w.T (+ bias)``.

    Parameters of the kernel: x[rows, k] float32, w uint8 of ``quantized_shape``, bias[n] float32 if
    asked for, y[rows, n] float32. Rows of x are quantized on the fly, as
    ``quantized_activations`` says. Sizes are learned at run time.
    """
    layout = layout_of(QuantizationEncoding[encoding])
    with b.kernel(f"quantized_linear_{encoding.lower()}") as kernel:
        rows, blocks, spans, n, k = (
            kernel.dim(name) for name in ("rows", "blocks", "spans", "n", "k")
        )
        x = kernel.argument("x", (rows, k))
        w = kernel.argument("w", (blocks, spans, layout.nbytes), "uint8")
        offsets = kernel.argument("bias", (n,)) if bias else None
        y = kernel.argument("y", (rows, n))
        product = QuantizedProduct(machine, layout, n, k, x, w, offsets, y)
        b.either(rows == 1, product.one_row, lambda: product.several_rows(rows))
    return kernel.function
