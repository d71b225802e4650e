"""Rows times the matrix that each of them has chosen: the experts of a mixture.

A choice is one row of x for one expert. A few of them are multiplied one by one; of many, those of
one expert lie together in an order that ``expert_order`` has made. Nothing depends on how many rows
an expert has but how often its blocks go round: the host does not know it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import gemv
from maxtool.compiler.kernels.cuda.gemv import gemv_block
from maxtool.compiler.kernels.cuda.gemv_products import Float32, TensorCores
from maxtool.compiler.kernels.cuda.linear import TILES, TILES_FLOAT32
from maxtool.compiler.kernels.cuda.matrix import Matrix
from maxtool.compiler.kernels.cuda.product_output import Output, Part
from maxtool.compiler.kernels.cuda.tiles import ProductTile, tile_product
from maxtool.compiler.kernels.cuda.tiles_float32 import THREADS, tile_product_float32

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

    Args:
        shared_memory: Bytes that a block may have.
        weight_dtype: float32, float16, or bfloat16 (passed as uint16 bits).
        aligned: Whether k is a multiple of 16 bytes.
        fours: Whether n is a multiple of four.
        wide: Whether there are columns enough for a large tile.
        few: Whether it is for few choices only, which need not be sorted.
    """
    suffix = "_few" if few else ""
    with b.kernel(
        f"expert_linear_{weight_dtype}{suffix}{'' if aligned else '_unaligned'}"
    ) as kernel:
        experts, n, k = (kernel.dim(name) for name in ("experts", "n", "k"))
        rows, count = kernel.dim("rows"), kernel.dim("choices")
        stored = b.STORAGE[weight_dtype]
        x = kernel.argument("x", (rows, k), stored)
        w = kernel.argument("w", (experts, n, k), stored)
        chosen = kernel.argument("chosen", (count,), "int64")
        sorted_: tuple[b.Buffer, ...] = ()
        if not few:
            starts = kernel.argument("starts", (experts + 1,), "int64")
            sorted_ = (starts, kernel.argument("order", (count,), "int64"))
        y = kernel.argument("y", (count, n))
        choices = ExpertChoices(
            Matrix(x, rows, k, weight_dtype, aligned),
            Matrix(w, n, k, weight_dtype, aligned, (b.integer(0),)),
            Output(y, count, n, fours=fours),
            chosen,
            count,
            experts,
            b.greatest(b.quotient(count, b.greatest(rows, 1)), 1),
        )
        if few:
            _one_by_one(choices, shared_memory)
        else:
            b.either(
                count <= FEW,
                lambda: _one_by_one(choices, shared_memory),
                lambda: _sorted(choices, sorted_, wide, shared_memory),
            )
    return kernel.function


def _one_by_one(expert_choices: ExpertChoices, shared_memory: int) -> None:
    """A block for some columns of each choice."""
    form = Float32(rows=1) if expert_choices.x.dtype == "float32" else TensorCores()
    columns = b.ceildiv(expert_choices.w.rows, form.columns)
    blocks = expert_choices.count * columns
    with b.launch([blocks], gemv.THREADS, min_blocks_per_sm=gemv.MIN_BLOCKS_PER_SM) as (
        block,
        thread,
    ):
        choice = b.index(b.block_quotient(block, columns))
        column = b.index((block - choice * columns) * form.columns)
        expert, row = (
            b.index(b.clamped(expert_choices.chosen[choice], expert_choices.experts)),
            expert_choices.source(choice),
        )
        # Of the rows that a block has, all are that of the choice, and only the first is stored.
        x, w = replace(expert_choices.x, rows=row + 1), replace(expert_choices.w, at=(expert,))
        output = replace(expert_choices.output, rows=choice + 1)

        def epilogue(down: b.Expr, right: b.Expr, sums: Any) -> None:  # noqa: ANN401
            output.store(b.index(choice + down), b.index(column + right), sums[0])

        memory = gemv.shared_stages(form, 1, shared_memory)
        gemv_block(form, x, [w], (row, column), thread, epilogue, memory)


def _sorted(
    expert_choices: ExpertChoices, order: tuple[b.Buffer, ...], wide: bool, shared_memory: int
) -> None:
    if expert_choices.x.dtype == "float32":
        square = TILES_FLOAT32[-1]

        def tiled(*arguments: Any) -> None:  # noqa: ANN401
            tile_product_float32(square.side, *arguments)

        size = square.side, square.side
        _each_tile(expert_choices, order, size, (THREADS, square.min_blocks_per_sm), tiled)
        return
    large = wide and expert_choices.w.aligned and expert_choices.output.fours
    tile = (TILE if large else TILES[-1]).within(shared_memory)

    def tiled_narrow(*given: Any) -> None:  # noqa: ANN401
        tile_product(tile, *given)

    size = tile.rows, tile.columns
    _each_tile(expert_choices, order, size, (tile.threads, tile.min_blocks_per_sm), tiled_narrow)


def _each_tile(
    expert_choices: ExpertChoices,
    order: tuple[b.Buffer, ...],
    size: tuple[int, int],
    block_of: tuple[int, int],
    tiled: Callable[..., None],
) -> None:
    """Blocks for each expert and some columns, as many as its tiles would be if all had the same.

    Where an expert has more rows, its blocks go round more often.

    Args:
        expert_choices: The buffers.
        order: What ``expert_order`` has made.
        size: Rows and columns of a tile.
        block_of: Threads of a block, and blocks that a multiprocessor is to have registers for.
        tiled: Emits what a block does for a tile.
    """
    (starts, places), (height, width), (threads, min_blocks_per_sm) = order, size, block_of
    columns = b.ceildiv(expert_choices.w.rows, width)
    slots = b.greatest(
        b.ceildiv(b.quotient(expert_choices.count, b.greatest(expert_choices.experts, 1)), height),
        1,
    )
    blocks = expert_choices.experts * columns * slots
    with b.launch([blocks], threads, min_blocks_per_sm=min_blocks_per_sm) as (block, thread):
        expert = b.index(b.block_quotient(block, columns * slots))
        rest = b.index(block - expert * (columns * slots))
        column = b.index(b.block_quotient(rest, slots))
        left = b.index(column * width)
        end, first = b.index(starts[expert + 1]), b.index(starts[expert])
        tile = b.cell(first + (rest - column * slots) * height)
        with T.While(tile.value < end):
            _tile(expert_choices, (expert, left), (places, b.index(tile.value), end), thread, tiled)
            b.barrier()  # the next tile's first stages go where these were
            tile.add(slots * height)


def _tile(
    expert_choices: ExpertChoices,
    corner: tuple[b.Expr, b.Expr],
    rows: tuple[b.Buffer, b.Expr, b.Expr],
    thread: b.Expr,
    tiled: Callable[..., None],
) -> None:
    """Multiply some rows of one expert by some of its columns."""
    (expert, left), (order, top, end) = corner, rows
    w = replace(expert_choices.w, at=(expert,))

    def source(row: b.Expr) -> b.Expr:
        return expert_choices.source(order[b.index(b.least(top + row, end - 1))])

    def row(one_of: b.Expr) -> tuple[b.Expr, b.Expr]:
        at = b.index(top + one_of)
        return at < end, b.index(order[b.index(b.least(at, end - 1))])

    sources = (source, lambda column: w.inside(left + column))
    tiled(
        (expert_choices.x, w),
        sources,
        thread,
        Part(expert_choices.output, row, left, looks_up=True),
    )
