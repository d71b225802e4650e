"""Rows times the matrix that each of them has chosen: the experts of a mixture.

A choice is one row of x for one expert. Choices are sorted by expert, so that a matrix is read once
for all of its rows, and that of an expert nobody chose is not read. Their order does not depend on
the threads, nor does any sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.epilogue import Output
from maxtool.compiler.kernels.cpu.float_dot import float_dot
from maxtool.compiler.kernels.cpu.linear import Result
from maxtool.compiler.kernels.cpu.linear_product import TILES_PER_TASK, LinearKernel


@dataclass(frozen=True, slots=True)
class ExpertChunks:
    """Choices of one expert that one task multiplies with one column block."""

    order: b.Buffer  # [choices] all of them, sorted by expert
    expert: b.Buffer  # [chunks] whose they are
    start: b.Buffer  # [chunks] the first of them in ``order``
    rows: b.Buffer  # [chunks] how many there are, at most those of a few tiles
    tile: b.Buffer  # [chunks] the first packed tile; a single row is not packed
    count: b.Buffer  # [2] how many chunks, and how many packed tiles there are


def expert_linear(tile: RegisterTile, weight_dtype: str, terms: int = 1) -> b.PrimFunc:
    """Build ``y[i] = x[i // (choices / rows)] @ w[chosen[i]].T``.

    Parameters of the kernel: x[rows, k] float32, w[experts, ceil(n / nr), k, nr], the packed
    weights of each expert, chosen[choices] int64, y[choices, n] float32. There are as many choices
    as rows, or a multiple of them: then those of one row follow each other. A number that is no
    expert's takes the first or last one. What several ``terms`` side by side change, ``linear``
    says.
    """
    dot = float_dot(tile, weight_dtype, terms)
    with b.kernel(f"expert_linear_{weight_dtype}{dot.suffix}") as kernel:
        experts, blocks, k, n = (kernel.dim(name) for name in ("experts", "blocks", "k", "n"))
        rows, choices = kernel.dim("rows"), kernel.dim("choices")
        x = kernel.argument("x", (rows, k))
        shape = dot.matrix(kernel, experts, blocks, k, tile.nr)
        w = kernel.argument("w", shape, b.STORAGE[weight_dtype])
        chosen = kernel.argument("chosen", (choices,), "int64")
        y = kernel.argument("y", (choices, n))
        product = LinearKernel(n, k, tile, dot, rows, x, w)
        per_row = T.Bind(b.greatest(b.quotient(choices, b.greatest(rows, 1)), 1))
        # Each expert that is used has a tile, or a chunk, that is not full.
        most = T.Bind(b.least(choices, experts) + b.quotient(choices, tile.mr))
        largest = TILES_PER_TASK * tile.mr
        chunks = sorted_choices(chosen, choices, experts, most, (tile.mr, largest))
        packed = product.packed(b.greatest(most, 1))
        work = _ExpertTasks(product, Output(y), chunks, packed, per_row)
        with b.when(chunks.count[1] > 0):
            b.each(T.Bind(chunks.count[0]), work.pack, threads=True)
        b.each_row(T.Bind(chunks.count[0] * blocks), tile.nr * k, work.multiply)
    return kernel.function


def sorted_choices(
    chosen: b.Buffer, choices: b.Expr, experts: b.Expr, most: b.Expr, rows: tuple[int, int]
) -> ExpertChunks:
    """Sort the choices by expert, and cut those of each into chunks, ``most`` at most.

    ``rows`` are those of a tile, and of a chunk at most.
    """
    size = b.greatest(most, 1)
    places = b.workspace((b.greatest(experts, 1),), "int64")
    chunks = ExpertChunks(
        order=b.workspace((b.greatest(choices, 1),), "int64"),
        expert=b.workspace((size,), "int64"),
        start=b.workspace((size,), "int64"),
        rows=b.workspace((size,), "int64"),
        tile=b.workspace((size,), "int64"),
        count=b.workspace((2,), "int64"),
    )
    with T.serial(experts) as e:
        b.store(places, b.integer(0), (e,))
    with T.serial(choices) as i:
        e = b.index(b.clamped(chosen[i], experts))
        b.store(places, places[e] + 1, (e,))
    _cut(chunks, places, experts, rows)
    with T.serial(choices) as i:
        e = b.index(b.clamped(chosen[i], experts))
        b.store(chunks.order, i, (places[e],))
        b.store(places, places[e] + 1, (e,))
    return chunks


def _cut(chunks: ExpertChunks, places: b.Buffer, experts: b.Expr, sizes: tuple[int, int]) -> None:
    """Turn the number of choices of each expert into offsets and chunks."""
    height, largest = sizes
    start = b.scratch((1,), "int64")
    for buffer, index in ((start, 0), (chunks.count, 0), (chunks.count, 1)):
        b.store(buffer, b.integer(0), (index,))
    with T.serial(experts) as e:
        count = b.index(places[e])
        b.store(places, start[0], (e,))
        with T.serial(b.ceildiv(count, largest)) as part:
            at = b.index(chunks.count[0])
            rows = b.index(b.least(count - part * largest, largest))
            tiles = T.Select(rows == 1, b.integer(0), b.ceildiv(rows, height))
            b.store(chunks.expert, e, (at,))
            b.store(chunks.start, start[0] + part * largest, (at,))
            b.store(chunks.rows, rows, (at,))
            b.store(chunks.tile, chunks.count[1], (at,))
            b.store(chunks.count, chunks.count[1] + tiles, (1,))
            b.store(chunks.count, at + 1, (0,))
        b.store(start, start[0] + count, (0,))


@dataclass(frozen=True, slots=True)
class _ExpertTasks:
    """Work of the threads once the choices are sorted."""

    one: LinearKernel
    output: Output
    chunks: ExpertChunks
    packed: b.Buffer
    per_row: b.Expr

    def source(self, choice: b.Expr) -> b.Expr:
        """The row of x that a choice is of."""
        return b.index(b.quotient(choice, self.per_row))

    def pack(self, c: b.Expr) -> None:
        """Pack the tiles of a chunk of more than one row; past its end, its last row repeats."""
        mr, start = self.one.tile.mr, b.index(self.chunks.start[c])
        rows = b.index(self.chunks.rows[c])
        with b.when(rows > 1), T.serial(b.ceildiv(rows, mr)) as t:
            places = [start + b.least(t * mr + r, rows - 1) for r in range(mr)]
            sources = [self.source(self.chunks.order[position]) for position in places]
            self.one.pack_tile(self.packed, b.index(self.chunks.tile[c] + t), sources)

    def multiply(self, task: b.Expr) -> None:
        """One chunk times one column block of its expert."""
        c = b.index(b.quotient(task, self.one.blocks))
        j = b.index(b.remainder(task, self.one.blocks))
        product = replace(self.one, expert=(b.index(self.chunks.expert[c]),))
        result = Result((product,), self.output)
        start, rows = b.index(self.chunks.start[c]), b.index(self.chunks.rows[c])

        def single() -> None:
            choice = b.index(self.chunks.order[start])
            result.row_block(j, self.source(choice), choice)

        def many() -> None:
            first, count = b.index(self.chunks.tile[c]), b.index(b.ceildiv(rows, product.tile.mr))
            tiles = self.packed, first, count
            result.tiles_block(tiles, j, lambda row: self.chunks.order[start + row], rows)

        b.either(rows == 1, single, many)
