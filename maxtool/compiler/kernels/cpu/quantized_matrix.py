"""Matrices of quantized weights times quantized rows, a column block at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.fetch_ahead import LINE
from maxtool.compiler.kernels.cpu.integer_dot import Dot, InstructionSet
from maxtool.compiler.kernels.cpu.quantized_activations import Activations
from maxtool.compiler.kernels.cpu.quantized_sums import Span
from maxtool.compiler.kernels.cpu.quantized_weights import Column
from maxtool.compiler.quantized_layout import COLUMNS, RecordLayout


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A matrix of quantized weights, packed as ``quantized_packing`` does; of an expert, maybe."""

    machine: InstructionSet
    layout: RecordLayout
    k: b.Expr
    w: b.Buffer
    expert: tuple[b.Expr, ...] = ()

    @property
    def dot(self) -> Dot:
        """Return the way weights and activations are multiplied."""
        return self.machine.dot(self.layout)

    @property
    def of_panels(self) -> QuantizedMatrix:
        """The same, multiplied as what was unpacked before."""
        return replace(self, machine=self.machine.of_panels)

    @property
    def spans(self) -> b.Expr:
        """Records of a column block."""
        return self.w.shape[-2]

    @property
    def blocks(self) -> b.Expr:
        """Column blocks."""
        return self.w.shape[-3]

    def columns(self, block: b.Expr, span: b.Index) -> list[Column]:
        """The vectors of columns of a record."""
        lanes = self.dot.lanes
        places = range(0, COLUMNS, lanes)
        return [Column(self.w, (*self.expert, block, span), at, lanes) for at in places]

    def tile(
        self,
        rows: Activations,
        tile: b.Expr,
        block: b.Expr,
        part: tuple[b.Expr, b.Expr],
    ) -> b.Buffer:
        """Sums of a tile of rows times a column block, which is unpacked as it is multiplied.

        ``part`` says which tile it is, of how many: each fetches its share of the next block.
        """
        sums = b.scratch((rows.rows, COLUMNS))
        subroutines.call(_multiply_tile, [sums], self, rows, tile, block, part)
        return sums

    def fetch_next(self, block: b.Expr, span: b.Expr, part: tuple[b.Expr, b.Expr]) -> None:
        """Fetch a share of a record of the next column block into the second cache.

        The first tile of a few would wait for memory, and the others leave it idle.
        """
        which, count = part
        lines = b.ceildiv(b.integer(b.ceildiv(self.layout.nbytes, LINE)), count)
        with T.serial(lines) as line:
            at = b.index((which * lines + line) * LINE)
            b.prefetch(self.w, (*self.expert, block + 1, span, at))

    def unpacking(
        self, rows: Activations, tile: b.Expr, span: b.Expr, columns: Sequence[Column]
    ) -> Span:
        """A record of columns, of this matrix or others, multiplied as they are unpacked."""
        dot = self.machine.unpacking(self.layout)
        return Span(self.layout, dot, rows, tile, span, columns)


def _multiply_tile(
    result: b.Buffer,
    matrix: QuantizedMatrix,
    rows: Activations,
    tile: b.Expr,
    block: b.Expr,
    part: tuple[b.Expr, b.Expr],
) -> None:
    """Write the sums of a tile of rows times a column block."""
    sums = b.Registers(rows.rows, COLUMNS, matrix.dot.lanes)
    sums.clear()
    with T.serial(matrix.spans) as span:
        columns = matrix.columns(block, span)
        matrix.fetch_next(block, span, part)
        matrix.unpacking(rows, tile, span, columns).add_unpacking(sums)
    sums.copy_to(result)


def one_row_sums(
    row: Activations, tile: b.Expr, matrix: QuantizedMatrix, block: b.Expr
) -> b.Buffer:
    """Sums of a tile of one row times a column block."""
    sums = b.scratch((1, COLUMNS))
    subroutines.call(_multiply_row, [sums], matrix, row, tile, block)
    return sums


def _multiply_row(
    result: b.Buffer, matrix: QuantizedMatrix, row: Activations, tile: b.Expr, block: b.Expr
) -> None:
    """Write the sums of a tile of one row times a column block."""
    sums = b.Registers(1, COLUMNS, matrix.dot.lanes)
    sums.clear()
    with T.serial(matrix.spans) as span:
        columns = matrix.columns(block, span)
        matrix.unpacking(row, tile, span, columns).add_unpacking(sums, fetches=True)
    sums.copy_to(result)
