"""Rows times the matrix that each of them has chosen: the experts of a mixture.

A choice is one row of x for one expert. A few of them are multiplied one by one; of many, those of
one expert lie together in an order that ``expert_order`` has made. Nothing depends on how many rows
an expert has but how often its blocks go round: the host does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import gemv
from maxtool.compiler.kernels.cuda.gemv_products import Float32, TensorCores
from maxtool.compiler.kernels.cuda.linear import Tile, has_large_tiles, tiles_for
from maxtool.compiler.kernels.cuda.matrix import Matrix
from maxtool.compiler.kernels.cuda.product_output import Output, Part
from maxtool.compiler.kernels.cuda.tiles import ProductTile

# With no more choices, each is multiplied by itself.
FEW = 32

# Of many tokens an expert has some hundred rows. Which they are takes registers: a warp has half
# the sums that it has of rows in order.
TILE = ProductTile(rows=128, columns=128, warps=(2, 4), stages=3, min_blocks_per_sm=1)


@dataclass(frozen=True, slots=True)
class ExpertChoices:
    """The buffers of one kernel while it is built."""

    x: Matrix  # the rows
    w: Matrix  # the matrices of the experts
    output: Output  # a row for each choice
    chosen: b.Buffer  # ``[choices]`` int64
    count: b.Expr  # how many choices there are
    experts: b.Expr  # how many experts there are
    per_row: b.Expr  # how many choices a row of x has

    def source(self, choice: b.Expr) -> b.Expr:
        """The row of x that a choice is of."""
        return b.index(b.quotient(choice, self.per_row))


def expert_linear(
    shared_memory: int,
    weight_dtype: str,
    *,
    aligned: bool,
    fours: bool,
    wide: bool,
    few: bool = False,
) -> b.PrimFunc:
    """Build ``y[i] = x[i // (choices / rows)] @ w[chosen[i]].T``.

    Parameters of the kernel: x[rows, k], float32 for float32 weights and of their type otherwise,
    w[experts, n, k], chosen[choices] int64, unless there are few: starts[experts + 1] and
    order[choices] int64 as ``expert_order`` makes them; y[choices, n] float32. There are as many
    choices as rows, or a multiple of them: then those of one row follow each other. A number that
    is no expert's takes the first or last one.
    """
    suffix = ("_few" if few else "") + ("" if aligned else "_unaligned")
    with b.kernel(f"expert_linear_{weight_dtype}{suffix}") as kernel:
        experts, n, k = (kernel.dim(name) for name in ("experts", "n", "k"))
        rows, count = kernel.dim("rows"), kernel.dim("choices")
        x = Matrix.argument(kernel, "x", (rows, k), weight_dtype, aligned=aligned)
        w = Matrix.argument(kernel, "w", (experts, n, k), weight_dtype, aligned=aligned)
        chosen = kernel.argument("chosen", (count,), "int64")
        if not few:
            starts = kernel.argument("starts", (experts + 1,), "int64")
            order = kernel.argument("order", (count,), "int64")
        y = kernel.argument("y", (count, n))
        output, per_row = Output(y, count, n, fours=fours), b.quotient(count, b.greatest(rows, 1))
        choices = ExpertChoices(x, w, output, chosen, count, experts, b.greatest(per_row, 1))
        if few:
            _one_by_one(choices, shared_memory)
        else:
            b.either(
                count <= FEW,
                lambda: _one_by_one(choices, shared_memory),
                lambda: _sorted(choices, starts, order, wide, shared_memory),
            )
    return kernel.function


def _one_by_one(choices: ExpertChoices, shared_memory: int) -> None:
    """A block for some columns of each choice."""
    form = Float32(rows=1) if choices.x.dtype == "float32" else TensorCores()
    columns = b.ceildiv(choices.w.rows, form.columns)
    blocks = [choices.count * columns]
    with b.launch(blocks, form.threads, form.min_blocks_per_sm) as (block, thread):
        choice = b.index(b.block_quotient(block, columns))
        column = b.index((block - choice * columns) * form.columns)
        expert = b.index(b.clamped(choices.chosen[choice], choices.experts))
        row = choices.source(choice)
        # Of the rows that a block has, all are that of the choice, and only the first is stored.
        x, w = replace(choices.x, rows=row + 1), replace(choices.w, at=(expert,))
        output = replace(choices.output, rows=choice + 1)
        epilogue = gemv.from_corner((choice, column), output.store)
        memory = gemv.shared_stages(form, 1, shared_memory)
        gemv.gemv_block(form, x, [w], (row, column), thread, epilogue, memory)


def _sorted(
    choices: ExpertChoices, starts: b.Buffer, order: b.Buffer, wide: bool, shared_memory: int
) -> None:
    """Blocks for each expert and some columns, as many as its tiles would be if all had the same.

    Where an expert has more rows, its blocks go round more often.
    """
    tile: Tile = tiles_for(choices.x.dtype, shared_memory)[-1]
    if choices.x.dtype != "float32" and has_large_tiles(choices.w, choices.output, wide=wide):
        tile = TILE.within(shared_memory)
    columns = b.ceildiv(choices.w.rows, tile.columns)
    each = b.quotient(choices.count, b.greatest(choices.experts, 1))
    slots = b.greatest(b.ceildiv(each, tile.rows), 1)
    blocks = [choices.experts * columns * slots]
    with b.launch(blocks, tile.threads, tile.min_blocks_per_sm) as (block, thread):
        expert = b.index(b.block_quotient(block, columns * slots))
        rest = b.index(block - expert * (columns * slots))
        column = b.index(b.block_quotient(rest, slots))
        left = b.index(column * tile.columns)
        end, first = b.index(starts[expert + 1]), b.index(starts[expert])
        top = b.cell(first + (rest - column * slots) * tile.rows)
        with T.While(top.value < end):
            rows = order, b.index(top.value), end
            _multiply(tile, choices, (expert, left), rows, thread)
            b.barrier()  # the next tile's first stages go where these were
            top.add(slots * tile.rows)


def _multiply(
    tile: Tile,
    choices: ExpertChoices,
    corner: tuple[b.Expr, b.Expr],
    rows: tuple[b.Buffer, b.Expr, b.Expr],
    thread: b.Expr,
) -> None:
    """Multiply some rows of one expert by some of its columns."""
    (expert, left), (order, top, end) = corner, rows
    w = replace(choices.w, at=(expert,))

    def source(row: b.Expr) -> b.Expr:
        return choices.source(order[b.index(b.least(top + row, end - 1))])

    def row(offset: b.Expr) -> tuple[b.Expr, b.Expr]:
        at = b.index(top + offset)
        return at < end, b.index(order[b.index(b.least(at, end - 1))])

    sources = (source, lambda column: w.inside(left + column))
    tile.multiply((choices.x, w), sources, thread, Part(choices.output, row, left, looks_up=True))
