"""x @ w.T with quantized weights: products of integers, scaled once for several terms.

A few rows read each weight as it is, and unpack it in registers: low tiles. So do many where that
is quick; otherwise a block of 16 columns is unpacked once into bytes (a panel), and all row tiles
walk it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
from maxtool.compiler.kernels.kernel_options import Epilogue
from maxtool.compiler.quantized_layout import COLUMNS, RecordLayout, layout_of
from maxtool.quantization import QuantizationEncoding

# Row tiles that one task multiplies with a panel: unpacking it costs as much as one or two.
TILES_PER_TASK = 32
# Low tiles that unpack the same weights, at most; and where a vector is as wide as a column block:
# then four rows take as long for each of them as twelve with a panel.
LOW_TILES = 2
WIDE_LOW_TILES = 4

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

    def tiles_block(
        self,
        tiles: Tiles,
        block: b.Expr,
        target: Callable[[b.Expr], b.Expr],
        rows: b.Expr,
        *,
        unpacked: bool = True,
    ) -> None:
        """Some row tiles times a column block of each matrix, which is unpacked before or not.

        ``target`` says which row of the result each row of the tiles is, counted from the first of
        them; of these there are ``rows``.
        """
        quantized, first, count = tiles
        matrices = [matrix.of_panels if unpacked else matrix for matrix in self.matrices]
        panels = [matrix.unpack(block) if unpacked else None for matrix in matrices]
        with matrices[0].dot.prepared(), T.serial(count) as t:
            tile = b.index(first + t)
            part = b.index(t), count
            sums = [
                matrix.tile(quantized.of(matrix.layout), tile, block, panel, part)
                for matrix, panel in zip(matrices, panels, strict=True)
            ]
            with T.serial(b.integer(quantized.rows)) as r:
                row = b.index(t * quantized.rows + r)
                with b.when(row < rows):
                    own = [(buffer, (r,)) for buffer in sums]
                    self._store(own, block, b.index(target(row)))

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
        most = most_low_rows(self.machine, self.layouts)
        if most is None:
            self.many_rows(unpacked=False)
            return
        b.either(
            self.x.shape[0] <= most,
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

        def multiply(number: int, i: b.Expr) -> None:
            block = b.index(b.quotient(i, chunks))
            first = b.index(b.remainder(i, chunks) * TILES_PER_TASK)
            count = b.index(b.least(tiles - first, TILES_PER_TASK))
            start = b.index(first * height)
            self.results[number].tiles_block(
                (quantized, first, count),
                block,
                lambda row: start + row,
                b.index(rows - start),
                unpacked=unpacked,
            )

        each_task([chunks * result.first.blocks for result in self.results], multiply)


def most_low_rows(machine: InstructionSet, layouts: Iterable[RecordLayout]) -> int | None:
    """Return how many rows low tiles multiply faster than a panel does; None if any number.

    With AVX-512 low tiles of Q4_0, Q8_0 and Q4_K take 0.55 to 0.6 times as long for 16 rows, 0.8
    times for 32 and 0.9 to 0.98 for 512; of Q6_K, Q5_K and Q3_K 0.65 to 0.83 times, 0.91 to 1.15
    and 1.03 to 1.37 (Zen 4, one thread).
    """
    if machine.matrices is not None or machine.narrow.lanes < COLUMNS:
        return LOW_TILES * machine.few_rows
    quick = all(layout.is_quickly_unpacked for layout in layouts)
    return None if quick else WIDE_LOW_TILES * machine.few_rows


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
