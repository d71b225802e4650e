"""x @ w.T: which kernel for how many rows, and which part of the result each block computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import gemv
from maxtool.compiler.kernels.cuda.gemv import ChunkProduct, gemv_block
from maxtool.compiler.kernels.cuda.gemv_products import Float32, TensorCores
from maxtool.compiler.kernels.cuda.matrix import Matrix
from maxtool.compiler.kernels.cuda.product_output import Output, Part
from maxtool.compiler.kernels.cuda.tiles import ProductTile, tile_product
from maxtool.compiler.kernels.cuda.tiles_float32 import THREADS, Float32Tile, tile_product_float32

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

    x: Matrix  # the rows
    w: Matrix  # the weights, in the type of the rows
    output: Output  # the result
    batch: b.Expr  # how many there are of each; 1 without a batch

    def of(self, index: b.Expr) -> Product:
        """One of a batch."""
        if not self.x.at:
            return self
        at = (index,)
        parts = replace(self.x, at=at), replace(self.w, at=at), replace(self.output, at=at)
        return Product(*parts, self.batch)


def linear(
    shared_memory: int,
    weight_dtype: str,
    bias: bool = False,
    batched: bool = False,
    *,
    aligned: bool,
    fours: bool,
    wide: bool,
    residual: bool = False,
) -> b.PrimFunc:
    """Build ``y = x @ w.T (+ bias) (+ residual)``.

    Parameters of the kernel: x[rows, k], float32 for float32 weights and of their type otherwise,
    w[n, k], bias[n] and residual[rows, n] float32 if asked for, y[rows, n] float32. In a batch, all
    but the bias have another dimension before these, of as many matrices.

    Args:
        shared_memory: Bytes that a block may have.
        weight_dtype: float32, float16, or bfloat16 (passed as uint16 bits).
        bias: Whether there is one.
        batched: Whether it multiplies a batch.
        aligned: Whether k is a multiple of 16 bytes.
        fours: Whether n is a multiple of four.
        wide: Whether there may be columns enough for large tiles.
        residual: Whether there is one.
    """
    suffix = "" if aligned else "_unaligned"
    with b.kernel(f"linear_{weight_dtype}{'_batch' if batched else ''}{suffix}") as kernel:
        batch = (kernel.dim("batch"),) if batched else ()
        rows, n, k = kernel.dim("rows"), kernel.dim("n"), kernel.dim("k")
        stored = b.STORAGE[weight_dtype]
        x = kernel.argument("x", (*batch, rows, k), stored)
        w = kernel.argument("w", (*batch, n, k), stored)
        added = kernel.argument("bias", (n,)) if bias else None
        more = kernel.argument("residual", (*batch, rows, n)) if residual else None
        y = kernel.argument("y", (*batch, rows, n))
        first = (b.integer(0),) * len(batch)
        product = Product(
            Matrix(x, rows, k, weight_dtype, aligned, first),
            Matrix(w, n, k, weight_dtype, aligned, first),
            Output(y, rows, n, added, more, fours=fours, at=first),
            prod(batch, start=b.integer(1)),
        )
        if weight_dtype == "float32":
            _float32(product, wide, shared_memory)
        else:
            _narrow(product, wide, shared_memory)
    return kernel.function


def _has_large_tiles(product: Product, wide: bool) -> bool:
    """Return whether a product is worth the large tiles; whatever is rare has small ones only."""
    return wide and product.w.aligned and product.output.fours


def _narrow(product: Product, wide: bool, shared_memory: int) -> None:
    tiles = TILES if _has_large_tiles(product, wide) else TILES[-1:]
    kept = [tile.within(shared_memory) for tile in tiles]
    sizes = [(tile.rows, tile.columns) for tile in kept]

    def tiled(index: int) -> None:
        tile = kept[index]

        def block(here: Product, corner: tuple[b.Expr, b.Expr], thread: b.Expr) -> None:
            operands, sources = (here.x, here.w), _sources(here, corner)
            tile_product(tile, operands, sources, thread, _part(here.output, corner))

        _launch_tiles(product, sizes[index], tile.threads, block, tile.min_blocks_per_sm)

    b.either(
        product.x.rows <= FEW,
        lambda: _few(product, TensorCores(), shared_memory),
        lambda: _first_full(product, sizes, tiled),
    )


def _float32(product: Product, wide: bool, shared_memory: int) -> None:
    tiles = TILES_FLOAT32 if _has_large_tiles(product, wide) else TILES_FLOAT32[-1:]
    sizes = [(tile.side, tile.side) for tile in tiles]

    def tiled(index: int) -> None:
        tile = tiles[index]

        def block(here: Product, corner: tuple[b.Expr, b.Expr], thread: b.Expr) -> None:
            operands, sources = (here.x, here.w), _sources(here, corner)
            part = _part(here.output, corner)
            tile_product_float32(tile.side, operands, sources, thread, part)

        _launch_tiles(product, sizes[index], THREADS, block, tile.min_blocks_per_sm)

    def several() -> None:
        _few(product, Float32(rows=4), shared_memory)

    def more() -> None:
        b.either(product.x.rows <= FEW, several, lambda: _first_full(product, sizes, tiled))

    b.either(product.x.rows == 1, lambda: _few(product, Float32(rows=1), shared_memory), more)


def _first_full(
    product: Product, sizes: Sequence[tuple[int, int]], tiled: Callable[[int], None], index: int = 0
) -> None:
    """The largest tiles of which there are enough, else the smallest.

    Args:
        product: The product.
        sizes: Rows and columns of the tiles, largest first.
        tiled: Emits the launch of one of them.
        index: The first of them to look at.
    """
    if index == len(sizes) - 1:
        tiled(index)
        return
    rows, columns = sizes[index]
    count = b.ceildiv(product.x.rows, rows) * b.ceildiv(product.w.rows, columns) * product.batch
    b.either(
        count >= FULL,
        lambda: tiled(index),
        lambda: _first_full(product, sizes, tiled, index + 1),
    )


def _few(product: Product, form: ChunkProduct, shared_memory: int) -> None:
    def block(here: Product, corner: tuple[b.Expr, b.Expr], thread: b.Expr) -> None:
        epilogue = _single(here.output, corner)
        memory = gemv.shared_stages(form, 1, shared_memory)
        gemv_block(form, here.x, [here.w], corner, thread, epilogue, memory)

    _launch_tiles(product, (form.rows, form.columns), gemv.THREADS, block, gemv.MIN_BLOCKS_PER_SM)


def _launch_tiles(
    product: Product,
    size: tuple[int, int],
    threads: int,
    body: Callable[[Product, tuple[b.Expr, b.Expr], b.Expr], None],
    min_blocks_per_sm: int,
) -> None:
    """A block for each part of ``size`` of the result of each product of the batch."""
    rows, columns = b.ceildiv(product.x.rows, size[0]), b.ceildiv(product.w.rows, size[1])
    each = rows * columns
    with b.launch([product.batch * each], threads, min_blocks_per_sm=min_blocks_per_sm) as (
        block,
        thread,
    ):
        at = b.index(b.block_quotient(block, each)) if product.x.at else b.integer(0)
        row, column = _walk(b.index(block - at * each), rows, columns)
        body(product.of(at), (b.index(row * size[0]), b.index(column * size[1])), thread)


def _walk(index: b.Expr, rows: b.Expr, columns: b.Expr) -> tuple[b.Expr, b.Expr]:
    """The row and column of the ``index``-th part: down ``WALKED`` rows, then the next column."""
    band = b.index(b.block_quotient(index, columns * WALKED))
    inside = b.index(index - band * (columns * WALKED))
    height = b.index(b.least(rows - band * WALKED, WALKED))
    column = b.index(b.block_quotient(inside, height))
    return band * WALKED + (inside - column * height), column


def _sources(
    product: Product, corner: tuple[b.Expr, b.Expr]
) -> tuple[Callable[[b.Expr], b.Expr], Callable[[b.Expr], b.Expr]]:
    row, column = corner
    return (lambda at: product.x.inside(row + at)), (lambda at: product.w.inside(column + at))


def _single(output: Output, corner: tuple[b.Expr, b.Expr]) -> gemv.Epilogue:
    """Store the sum of an element."""

    def epilogue(row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
        output.store(b.index(corner[0] + row), b.index(corner[1] + column), sums[0])

    return epilogue


def _part(output: Output, corner: tuple[b.Expr, b.Expr]) -> Part:
    """The part of a result that begins at a corner."""

    def row(offset: b.Expr) -> tuple[b.Expr, b.Expr]:
        row_index = b.index(corner[0] + offset)
        return row_index < output.rows, row_index

    return Part(output, row, corner[1])
