"""Rows times the quantized matrix that each of them has chosen: the experts of a mixture.

Choices are sorted and cut into chunks as ``experts`` says. Each row is quantized once by itself,
for the experts that it alone has chosen, and in tiles with others that have chosen the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.epilogue import Output
from maxtool.compiler.kernels.cpu.experts import ExpertChunks, sorted_choices
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet
from maxtool.compiler.kernels.cpu.quantized_activations import QuantizedRows
from maxtool.compiler.kernels.cpu.quantized_linear import (
    TILES_PER_TASK,
    QuantizedResult,
    has_wide_low_tiles,
)
from maxtool.compiler.kernels.cpu.quantized_matrix import QuantizedMatrix
from maxtool.compiler.quantized_layout import COLUMNS, layout_of
from maxtool.quantization import QuantizationEncoding


def quantized_expert_linear(machine: InstructionSet, encoding: str) -> b.PrimFunc:
    """Build ``y[i] = x[i // (choices / rows)] @ w[chosen[i]].T``.

    Parameters of the kernel: x[rows, k] float32, w uint8 [experts, *quantized_shape],
    chosen[choices] int64, y[choices, n] float32; see ``expert_linear``.
    """
    layout = layout_of(QuantizationEncoding[encoding])
    # Few rows choose the same expert: low tiles serve them where they are as fast for some.
    unpacked = not (has_wide_low_tiles(machine) and layout.is_quickly_unpacked)
    height = machine.rows if unpacked else machine.few_rows
    multiplying = machine.of_panels if unpacked else machine
    with b.kernel(f"quantized_expert_linear_{encoding.lower()}") as kernel:
        experts, blocks, spans = (kernel.dim(name) for name in ("experts", "blocks", "spans"))
        rows, k, choices, n = (kernel.dim(name) for name in ("rows", "k", "choices", "n"))
        x = kernel.argument("x", (rows, k))
        w = kernel.argument("w", (experts, blocks, spans, layout.nbytes), "uint8")
        chosen = kernel.argument("chosen", (choices,), "int64")
        y = kernel.argument("y", (choices, n))
        matrix = QuantizedMatrix(machine, layout, k, w)
        per_row = T.Bind(b.greatest(b.quotient(choices, b.greatest(rows, 1)), 1))
        # Each expert that is used has a tile, or a chunk, that is not full.
        most = T.Bind(b.least(choices, experts) + b.quotient(choices, height))
        sizes = (height, TILES_PER_TASK * height)
        chunks = sorted_choices(chosen, choices, experts, most, sizes)
        single = QuantizedRows(machine, [layout], (b.greatest(rows, 1), k), 1)
        tiles = QuantizedRows(multiplying, [layout], (b.greatest(most, 1), k), height)
        work = _QuantizedTasks(matrix, Output(y), x, chunks, single, tiles, unpacked, per_row)
        b.each_row(rows, k, lambda row: single.quantize(x, row, [(row,)]))
        with b.when(chunks.count[1] > 0):
            b.each(T.Bind(chunks.count[0]), work.quantize, threads=True)
        b.each_row(T.Bind(chunks.count[0] * work.places), COLUMNS * k, work.multiply)
    return kernel.function


@dataclass(frozen=True, slots=True)
class _QuantizedTasks:
    """Work of the threads once the choices are sorted."""

    matrix: QuantizedMatrix
    output: Output
    x: b.Buffer
    chunks: ExpertChunks
    single: QuantizedRows  # a tile for each row
    tiles: QuantizedRows
    unpacked: bool  # whether tiles are multiplied with panels
    per_row: b.Expr

    def source(self, choice: b.Expr) -> b.Expr:
        """The row of x that a choice is of."""
        return b.index(b.quotient(choice, self.per_row))

    def quantize(self, c: b.Expr) -> None:
        """Quantize the tiles of a chunk of more than one row; beyond its end, its last repeats."""
        height, start = self.tiles.rows, b.index(self.chunks.start[c])
        rows = b.index(self.chunks.rows[c])
        with b.when(rows > 1), T.serial(b.ceildiv(rows, height)) as t:
            places = [start + b.least(t * height + r, rows - 1) for r in range(height)]
            sources = [(self.source(self.chunks.order[place]),) for place in places]
            self.tiles.quantize(self.x, b.index(self.chunks.tile[c] + t), sources)

    def multiply(self, task: b.Expr) -> None:
        """One chunk times some column blocks of its expert."""
        c = b.index(b.quotient(task, self.places))
        place = b.index(b.remainder(task, self.places))
        matrix = replace(self.matrix, expert=(b.index(self.chunks.expert[c]),))
        result = QuantizedResult((matrix,), self.output)
        start, rows = b.index(self.chunks.start[c]), b.index(self.chunks.rows[c])

        def single() -> None:
            choice = b.index(self.chunks.order[start])
            source = self.source(choice)
            for block, is_there in result.blocks(place, unpacked=self.unpacked):
                with b.when(is_there):
                    result.row_block(self.single, source, block, choice)

        def many() -> None:
            first, count = b.index(self.chunks.tile[c]), b.index(b.ceildiv(rows, self.tiles.rows))
            work = result.panel_tiles if self.unpacked else result.low_tiles
            order = self.chunks.order
            work((self.tiles, first, count), place, lambda row: order[start + row], rows)

        b.either(rows == 1, single, many)

    @property
    def places(self) -> b.Expr:
        """The parts of a matrix that tasks have."""
        return QuantizedResult((self.matrix,), self.output).places(unpacked=self.unpacked)
