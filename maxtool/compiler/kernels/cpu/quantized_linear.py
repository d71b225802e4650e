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
from maxtool.compiler.kernels.cpu.quantized_sums import Span
from maxtool.compiler.kernels.cpu.quantized_weights import Column
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
            self._record(row, tile, span, columns).add_unpacking(sums)
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
            record = self._record(rows, tile, span, self.columns(block, span))
            if panel is None:
                record.add_unpacking(sums)
            else:
                record.add_panel(sums, panel)
        return sums

    def _record(
        self, rows: Activations, tile: b.Expr, span: b.Expr, columns: Sequence[Column]
    ) -> Span:
        """One record of some columns times the same terms of a tile."""
        return Span(self.layout, self.dot, self.k, rows, tile, span, columns)

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
