"""x @ w.T with quantized weights: products of integers, scaled once for several terms.

A few rows read each weight as it is, and unpack it in registers: low tiles. For many a block of 16
columns, or two, is unpacked once (a panel), and all row tiles walk it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.epilogue import (
    Output,
    Sums,
    arguments,
    each_task,
    kernel_name,
)
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet
from maxtool.compiler.kernels.cpu.quantized_activations import QuantizedRows
from maxtool.compiler.kernels.cpu.quantized_matrix import QuantizedMatrix, one_row_sums
from maxtool.compiler.kernels.cpu.quantized_panel import unpack
from maxtool.compiler.kernels.kernel_options import Epilogue
from maxtool.compiler.quantized_layout import COLUMNS, RecordLayout, layout_of
from maxtool.quantization import QuantizationEncoding

# Row tiles that one task multiplies with a panel: unpacking it costs as much as one or two.
TILES_PER_TASK = 48
# Low tiles that unpack the same weights, at most; and where a vector is as wide as a column block:
# then four rows take as long for each of them as six with a panel of two blocks.
LOW_TILES = 2
WIDE_LOW_TILES = 4
QUICK_LOW_TILES = 8  # where unpacking takes two operations

# Quantized rows, the first of their tiles to take, and how many.
Tiles: TypeAlias = tuple[QuantizedRows, b.Expr, b.Expr]


@dataclass(frozen=True, slots=True)
class QuantizedResult:
    """A result of a kernel, and the matrices of the products that it is computed from."""

    matrices: tuple[QuantizedMatrix, ...]
    output: Output

    @property
    def first(self) -> QuantizedMatrix:
        """The first matrix, whose sizes are those of all."""
        return self.matrices[0]

    def row_block(self, rows: QuantizedRows, tile: b.Expr, block: b.Expr, target: b.Expr) -> None:
        """A tile of one row times a column block of all matrices, into a row of the result."""
        sums: list[Sums] = [
            (one_row_sums(rows.of(matrix.layout), tile, matrix, block), (b.integer(0),))
            for matrix in self.matrices
        ]
        self._store(sums, block, target)

    def low_tiles(
        self, tiles: Tiles, block: b.Expr, target: Callable[[b.Expr], b.Expr], rows: b.Expr
    ) -> None:
        """Some low tiles times a column block of each matrix, unpacked as it is multiplied.

        ``target`` says which row of the result each row of the tiles is, counted from the first of
        them; of these there are ``rows``.
        """
        quantized, first, count = tiles
        with T.serial(count) as t:
            part = b.index(t), count
            sums = [
                matrix.tile(quantized.of(matrix.layout), b.index(first + t), block, part)
                for matrix in self.matrices
            ]
            with self._each_row(quantized, t, rows) as (r, row):
                self._store([(buffer, (r,)) for buffer in sums], block, b.index(target(row)))

    def panel_tiles(
        self, tiles: Tiles, panel: b.Expr, target: Callable[[b.Expr], b.Expr], rows: b.Expr
    ) -> None:
        """Some row tiles times a panel of each matrix, which is unpacked before."""
        quantized, first, count = tiles
        blocks, last = self.blocks(panel, unpacked=True), self.first.blocks - 1
        matrices = [matrix.of_panels for matrix in self.matrices]
        there = [b.index(b.least(block, last)) for block, _ in blocks]
        panels = [unpack(matrix, there) for matrix in matrices]
        with matrices[0].dot.prepared(), T.serial(count) as t:
            sums = [
                own.tile(quantized.of(matrix.layout), b.index(first + t))
                for matrix, own in zip(matrices, panels, strict=True)
            ]
            with self._each_row(quantized, t, rows) as (r, row):
                for at, (block, is_there) in enumerate(blocks):
                    with b.when(is_there):
                        own = [(buffer, (r, at)) for buffer in sums]
                        self._store(own, block, b.index(target(row)))

    def places(self, *, unpacked: bool) -> b.Expr:
        """Panels, or column blocks that are not unpacked before."""
        return b.ceildiv(self.first.blocks, self._blocks(unpacked=unpacked))

    def blocks(self, place: b.Expr, *, unpacked: bool) -> list[tuple[b.Expr, b.Expr]]:
        """The column blocks of one of these, and whether there is each."""
        count = self._blocks(unpacked=unpacked)
        numbers = [b.index(place * count + at) for at in range(count)]
        first, *others = numbers
        there = [number < self.first.blocks for number in others]
        return [(first, tirx.const(True, "bool")), *zip(others, there, strict=True)]

    def _blocks(self, *, unpacked: bool) -> int:
        return self.first.machine.blocks if unpacked else 1

    @contextmanager
    def _each_row(
        self, quantized: QuantizedRows, t: b.Expr, rows: b.Expr
    ) -> Iterator[tuple[b.Expr, b.Expr]]:
        """Emit statements for each row of a tile: its number there, and among all ``rows``."""
        with T.serial(b.integer(quantized.rows)) as r:
            row = b.index(t * quantized.rows + r)
            with b.when(row < rows):
                yield r, row

    def _store(self, sums: Sequence[Sums], block: b.Expr, row: b.Expr) -> None:
        self.output.store_row(sums, block, row, (COLUMNS, self.first.dot.lanes))


@dataclass(frozen=True, slots=True)
class _Products:
    """All results of a kernel, and the rows that they are computed from."""

    machine: InstructionSet
    x: b.Buffer
    results: Sequence[QuantizedResult]

    @property
    def layouts(self) -> list[RecordLayout]:
        """The layouts of all matrices."""
        return [matrix.layout for result in self.results for matrix in result.matrices]

    def by_rows(self) -> None:
        """One row, a few or many: by different loops."""
        b.either(self.x.shape[0] == 1, self.one_row, self.several_rows)

    def one_row(self) -> None:
        """A column block a task, whose weights are fetched ahead."""
        first, k = b.integer(0), self.x.shape[1]
        row = QuantizedRows(self.machine, self.layouts, (b.integer(1), k), 1)
        row.quantize(self.x, first, [(first,)])

        def multiply(number: int, block: b.Expr) -> None:
            self.results[number].row_block(row, first, block, first)

        each_task([result.first.blocks for result in self.results], multiply, COLUMNS * k)

    def several_rows(self) -> None:
        """Products by low tiles of a few rows, or by tiles that share a panel."""
        b.either(
            self.x.shape[0] <= most_low_rows(self.machine, self.layouts),
            lambda: self.many_rows(unpacked=False),
            lambda: self.many_rows(unpacked=True),
        )

    def many_rows(self, *, unpacked: bool) -> None:
        """Quantize x by tiles, then multiply them by column blocks on all threads."""
        height = self.machine.rows if unpacked else self.machine.few_rows
        rows, k = self.x.shape
        tiles = T.Bind(b.ceildiv(rows, height))
        machine = self.machine.of_panels if unpacked else self.machine
        quantized = QuantizedRows(machine, self.layouts, (tiles, k), height)

        def quantize(t: b.Expr) -> None:
            sources = [(b.index(b.least(t * height + r, rows - 1)),) for r in range(height)]
            quantized.quantize(self.x, t, sources)

        b.each(tiles, quantize, threads=True)
        chunks = T.Bind(b.ceildiv(tiles, TILES_PER_TASK))
        per_task = T.Bind(b.ceildiv(tiles, b.greatest(chunks, 1)))

        def multiply(number: int, i: b.Expr) -> None:
            result, place = self.results[number], b.index(b.quotient(i, chunks))
            first = b.index(b.remainder(i, chunks) * per_task)
            count = b.index(b.least(tiles - first, per_task))
            start = b.index(first * height)
            work = result.panel_tiles if unpacked else result.low_tiles
            tiles_here = quantized, first, count
            work(tiles_here, place, lambda row: start + row, b.index(rows - start))

        each_task([chunks * result.places(unpacked=unpacked) for result in self.results], multiply)


def most_low_rows(machine: InstructionSet, layouts: Iterable[RecordLayout]) -> int:
    """Return how many rows low tiles multiply as fast as a panel does.

    With AVX-512 low tiles of Q4_0, Q8_0 and Q4_K take 0.74 to 0.89 times as long for 16 rows, 0.83
    to 1.0 times for 32 and 1.04 to 1.3 for 512; of Q6_K 0.96, 1.03 and 1.4 (Zen 5).
    """
    if not has_wide_low_tiles(machine):
        return LOW_TILES * machine.few_rows
    quick = all(layout.is_quickly_unpacked for layout in layouts)
    return (QUICK_LOW_TILES if quick else WIDE_LOW_TILES) * machine.few_rows


def has_wide_low_tiles(machine: InstructionSet) -> bool:
    """Return whether a vector of products of few rows is as wide as a column block."""
    return machine.matrices is None and machine.narrow.lanes == COLUMNS


def quantized_linear(machine: InstructionSet, encoding: str, bias: bool = False) -> b.PrimFunc:
    """Build ``y = x @ w.T (+ bias)``: ``quantized_linears`` of one result."""
    return quantized_linears(machine, ((encoding,),), (Epilogue((bias,)),))


def quantized_linears(
    machine: InstructionSet,
    encodings: tuple[tuple[str, ...], ...],
    epilogues: tuple[Epilogue, ...],
    one_row: bool = False,
) -> b.PrimFunc:
    """Build several results from products of the same rows, or of one row, each with an epilogue.

    Parameters of the kernel: x[rows, k] float32; what ``epilogue.arguments`` declares, where a
    matrix is uint8 of ``quantized_shape``. Rows of x are quantized on the fly, as
    ``quantized_activations`` says, once for all. Sizes are learned at run time.
    """
    name = f"quantized_{kernel_name(encodings, epilogues).lower()}"
    with b.kernel(f"{name}_row" if one_row else name) as kernel:
        rows, k = kernel.dim("rows"), kernel.dim("k")
        x = kernel.argument("x", (rows, k))

        def matrix(name: str, encoding: str) -> b.Buffer:
            layout = layout_of(QuantizationEncoding[encoding])
            sizes = kernel.dim(f"blocks_{name}"), kernel.dim(f"spans_{name}"), layout.nbytes
            return kernel.argument(name, sizes, "uint8")

        declared = arguments(kernel, rows, encodings, epilogues, matrix)
        results = [
            QuantizedResult(
                tuple(
                    QuantizedMatrix(machine, layout_of(QuantizationEncoding[encoding]), k, w)
                    for encoding, w in zip(own, matrices, strict=True)
                ),
                output,
            )
            for own, (matrices, output) in zip(encodings, declared, strict=True)
        ]
        products = _Products(machine, x, results)
        if one_row:
            products.one_row()
        else:
            products.by_rows()
    return kernel.function
