"""x @ w.T: which kernel for how many rows, and which part of the result each block computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import gemv
from maxtool.compiler.kernels.cuda.gemv_products import ChunkProduct, Float32, TensorCores
from maxtool.compiler.kernels.cuda.matrix import Matrix, Pieces
from maxtool.compiler.kernels.cuda.product_output import Output, Part, declared
from maxtool.compiler.kernels.cuda.tiles import ProductTile
from maxtool.compiler.kernels.cuda.tiles_float32 import Float32Tile
from maxtool.compiler.kernels.kernel_options import AS_IT_IS, ChainEpilogue

Tile: TypeAlias = ProductTile | Float32Tile

# With no more rows, the weights are read once for every eight of them instead of once for a tile.
FEW = 16

# Tiles, largest first. The large one is a warp's 64 x 64 eight times over. It reads 48 KiB of each
# stage for 4.2 million operations: at 474 TFLOP/s, which is 60 percent of what an H200 was measured
# to do, that is 5.4 TB/s from its L2 cache; smaller tiles ask more of it. They pay where large
# ones leave most of 132 SMs idle. Two are enough: they take most of the time that a model compiles.
TILES = (
    ProductTile(rows=128, columns=256, warps=(2, 4), stages=4, min_blocks_per_sm=1),
    ProductTile(rows=64, columns=64, warps=(2, 2), stages=4, min_blocks_per_sm=4),
)
TILES_FLOAT32 = (
    Float32Tile(side=128, min_blocks_per_sm=1),
    Float32Tile(side=64, min_blocks_per_sm=3),
)
FULL = 96

# Rows of tiles that are walked before the next column of tiles: their x stays in the L2 cache while
# a column of weights is read once for all of them.
WALKED = 16


@dataclass(frozen=True, slots=True)
class Product:
    """The operands and the result of one product."""

    x: Pieces  # the rows
    w: Pieces  # the weights, in the type of the rows
    output: Output  # the result
    batch: b.Expr | None = None  # how many there are of each, where they are a batch or groups

    def of(self, index: b.Expr) -> Product:
        """One of a batch."""
        return Product(self.x.of(index), self.w.of(index), self.output.of(index))


def linear(
    shared_memory: int,
    weight_dtype: str,
    batched: bool = False,
    *,
    aligned: bool,
    fours: bool,
    wide: bool,
    after: ChainEpilogue = AS_IT_IS,
) -> b.PrimFunc:
    """Build ``y = x @ w.T``, and what is done to it then.

    Parameters of the kernel: x[rows, k], float32 for float32 weights and of their type otherwise,
    w[n, k], what ``after`` reads, each [n] or [rows, n], y[rows, n]. In a batch, all but what has
    one dimension have another before these, of as many matrices.
    """
    suffix = "" if aligned else "_unaligned"
    with b.kernel(f"linear_{weight_dtype}{'_batch' if batched else ''}{suffix}") as kernel:
        batch = (kernel.dim("batch"),) if batched else ()
        rows, n, k = kernel.dim("rows"), kernel.dim("n"), kernel.dim("k")
        x = Matrix.argument(kernel, "x", (*batch, rows, k), weight_dtype, aligned=aligned)
        w = Matrix.argument(kernel, "w", (*batch, n, k), weight_dtype, aligned=aligned)
        operands = declared(kernel, (*batch, rows, n), after)
        y = kernel.argument("y", (*batch, rows, n), b.STORAGE[after.out])
        output = Output(y, rows, n, operands, after.steps, dtype=after.out, fours=fours, at=x.at)
        product = Product(x, w, output, *batch)
        _choose(product, wide, shared_memory)
    return kernel.function


def _choose(product: Product, wide: bool, shared_memory: int) -> None:
    """Emit launches for any number of rows, of which one is chosen when it is known."""
    rows, is_float32 = product.x.rows, product.x.dtype == "float32"
    large = has_large_tiles(product.w, product.output, wide=wide)
    tiles = tiles_for(product.x.dtype, shared_memory)[0 if large else -1 :]
    form = Float32(rows=4) if is_float32 else TensorCores()

    def several() -> None:
        b.either(
            rows <= FEW,
            lambda: _few(product, form, shared_memory),
            lambda: first_full(product, tiles),
        )

    if is_float32:
        b.either(rows == 1, lambda: _few(product, Float32(rows=1), shared_memory), several)
    else:
        several()


def tiles_for(dtype: str, shared_memory: int) -> Sequence[Tile]:
    """The tiles for a type, largest first, with as much memory as a block may have."""
    if dtype == "float32":
        return TILES_FLOAT32
    return [tile.within(shared_memory) for tile in TILES]


def has_large_tiles(w: Pieces, output: Output, *, wide: bool) -> bool:
    """Return whether a product is worth the large tiles; whatever is rare has small ones only."""
    return wide and w.aligned and output.fours


def first_full(product: Product, tiles: Sequence[Tile]) -> None:
    """Launch the largest tiles of which there are enough, else the smallest."""
    tile, *smaller = tiles
    if not smaller:
        _tiled(product, tile)
        return
    b.either(
        prod(_parts(product, tile)) >= FULL,
        lambda: _tiled(product, tile),
        lambda: first_full(product, smaller),
    )


def _tiled(product: Product, tile: Tile) -> None:
    def block(here: Product, corner: tuple[b.Expr, b.Expr], thread: b.Expr) -> None:
        sources = here.x.source(corner[0]), here.w.source(corner[1])
        part = Part(here.output, here.output.rows_from(corner[0]), corner[1])
        tile.multiply((here.x, here.w), sources, thread, part)

    _launch(product, tile, block)


def _few(product: Product, form: ChunkProduct, shared_memory: int) -> None:
    def block(here: Product, corner: tuple[b.Expr, b.Expr], thread: b.Expr) -> None:
        epilogue = gemv.from_corner(corner, here.output.store)
        memory = gemv.shared_stages(form, 1, shared_memory)
        gemv.gemv_block(form, here.x, [here.w], corner, thread, epilogue, memory)

    _launch(product, form, block)


def _launch(
    product: Product,
    form: Tile | ChunkProduct,
    body: Callable[[Product, tuple[b.Expr, b.Expr], b.Expr], None],
) -> None:
    """A block for each part of the result of each product of the batch."""
    rows, columns, *batch = _parts(product, form)
    each = rows * columns
    with b.launch([prod(batch, start=each)], form.threads, form.min_blocks_per_sm) as at:
        block, thread = at
        here, part = product, block
        if batch:
            index = b.index(b.block_quotient(block, each))
            here, part = product.of(index), b.index(block - index * each)
        row, column = _walk(part, rows, columns)
        body(here, (b.index(row * form.rows), b.index(column * form.columns)), thread)


def _parts(product: Product, form: Tile | ChunkProduct) -> list[b.Expr]:
    """Parts of the rows, of the columns, and how many products have them where they are several."""
    rows = b.ceildiv(product.x.rows, form.rows)
    columns = b.ceildiv(product.w.rows, form.columns)
    return [rows, columns] if product.batch is None else [rows, columns, product.batch]


def _walk(index: b.Expr, rows: b.Expr, columns: b.Expr) -> tuple[b.Expr, b.Expr]:
    """The row and column of the ``index``-th part: down ``WALKED`` rows, then the next column."""
    band = b.index(b.block_quotient(index, columns * WALKED))
    inside = b.index(index - band * (columns * WALKED))
    height = b.index(b.least(rows - band * WALKED, WALKED))
    column = b.index(b.block_quotient(inside, height))
    return band * WALKED + (inside - column * height), column
