"""x @ w.T with packed weights: one row at memory speed, many rows by a register tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.epilogue import Output, arguments, each_task, kernel_name
from maxtool.compiler.kernels.cpu.float_dot import float_dot
from maxtool.compiler.kernels.cpu.linear_product import TILES_PER_TASK, LinearKernel, Tiles
from maxtool.compiler.kernels.kernel_options import Epilogue

# Numbers that a thread's L2 cache keeps, beside the weights that are multiplied and fetched.
CACHED = 5 << 15

# Weights that are few enough to be read again for every chunk of rows.
FEW = 1 << 20

# Chunks of rows that are enough for threads to have as much work each as with column blocks.
CHUNKS = 3

# Low tiles are worth it where they have at most 4 of 5 rows that others would have: theirs take
# longer, as there are fewer products for each weight that is loaded.
SAVED = 4


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a linear kernel, and the products of the same rows that it is computed from."""

    products: tuple[LinearKernel, ...]
    output: Output

    @property
    def first(self) -> LinearKernel:
        """The first product, whose sizes and rows are those of all."""
        return self.products[0]

    def of_batch(
        self, batch: Sequence[b.Expr], i: b.Expr, each: b.Expr
    ) -> tuple[Result, b.Expr, b.Expr]:
        """The matrices of the ``i``-th task, which they are, and which of their tasks it is."""
        if not batch:
            return self, b.integer(0), i
        at = b.index(b.quotient(i, each))
        products = tuple(replace(product, at=(at,), expert=(at,)) for product in self.products)
        own = Result(products, replace(self.output, at=(at,)))
        return own, at, b.index(i - at * each)

    def row_block(self, j: b.Expr, source: b.Expr, target: b.Expr) -> None:
        """One row of x times one column block of each product, into one row of the result."""
        sums = [product.row_sums(j, source) for product in self.products]
        self.output.store_row(sums, j, target, self.first.block_size)

    def tiles_block(
        self,
        tiles: Tiles,
        j: b.Expr,
        target: Callable[[b.Expr], b.Expr],
        rows: b.Expr,
        is_low: b.Expr | None = None,
    ) -> None:
        """Some row tiles times one column block of each product.

        ``target`` says which row of the result each row of the tiles is, counted from the first of
        them; of these there are ``rows``.
        """
        sums = [product.tile_sums(tiles, j, is_low) for product in self.products]
        height = self.first.height(is_low)
        with T.serial(tiles[2]) as t, T.serial(height) as r:
            row = b.index(t * height + r)
            with b.when(row < rows):
                here = [(buffer, (t, r)) for buffer in sums]
                self.output.store_row(here, j, b.index(target(row)), self.first.block_size)


def _one_row(results: Sequence[Result], batch: Sequence[b.Expr]) -> None:
    """A column block at a time."""
    first = b.integer(0)
    blocks = [T.Bind(result.first.blocks) for result in results]

    def block(number: int, i: b.Expr) -> None:
        result, _, j = results[number].of_batch(batch, i, blocks[number])
        result.row_block(j, first, first)

    product = results[0].first
    counts = [prod(batch, start=count) for count in blocks]
    each_task(counts, block, product.tile.nr * product.k)


def _many_rows(results: Sequence[Result], batch: Sequence[b.Expr]) -> None:
    """Repack x into tiles of mr rows, then multiply tile by block on all threads."""
    one = results[0].first
    rows = one.rows
    is_low = T.Bind(_are_low_tiles_fewer(one))
    height = T.Bind(one.height(is_low))
    tiles = T.Bind(b.ceildiv(rows, height))
    everything = T.Bind(prod(batch, start=tiles))
    packed = one.packed(everything)

    def pack(i: b.Expr) -> None:
        here, _, t = results[0].of_batch(batch, i, tiles)

        def copy(product: LinearKernel) -> None:
            own = range(product.tile.mr)
            sources = [b.index(b.least(t * height + r, rows - 1)) for r in own]
            product.pack_tile(packed, i, sources)

        here.first.by_height(is_low, copy)

    b.each(everything, pack, threads=True)
    by_rows = T.Bind(_stay_with_rows(one, b.ceildiv(tiles, TILES_PER_TASK)))
    chunks = T.Bind(b.ceildiv(tiles, _tiles_of_chunk(one, by_rows)))
    tasks = [T.Bind(chunks * result.first.blocks) for result in results]

    def multiply(number: int, i: b.Expr) -> None:
        here, at, task = results[number].of_batch(batch, i, tasks[number])
        blocks = T.Bind(here.first.blocks)
        j = b.index(T.Select(by_rows, b.remainder(task, blocks), b.quotient(task, chunks)))
        chunk = b.index(T.Select(by_rows, b.quotient(task, blocks), b.remainder(task, chunks)))
        first = b.index(b.quotient(chunk * tiles, chunks))
        count = b.index(b.quotient((chunk + 1) * tiles, chunks) - first)
        start = b.index(first * height)
        own = packed, b.index(at * tiles + first), count
        here.tiles_block(own, j, lambda row: start + row, b.index(rows - start), is_low)

    each_task([prod(batch, start=count) for count in tasks], multiply)


def _are_low_tiles_fewer(product: LinearKernel) -> b.Expr:
    """Return whether so many fewer rows are padded in low tiles that they are faster."""
    low, high = (
        b.ceildiv(product.rows, each.tile.mr) * each.tile.mr for each in (product.low, product)
    )
    return low * (SAVED + 1) <= high * SAVED


def _stay_with_rows(product: LinearKernel, chunks: b.Expr) -> b.Expr:
    """Return whether a thread walks all column blocks with a chunk of rows.

    It multiplies what it has packed itself then: reading rows from another core's cache may take
    longer than weights from memory. It walks all chunks with a column block where all rows stay in
    its cache, where not even a chunk of them does, and where there are many weights, more than
    there are numbers in the rows.
    """
    rows, weights = product.rows * product.k, product.n * product.k
    fits = tirx.all(_chunk(product) <= CACHED, 2 * rows > CACHED, chunks >= CHUNKS)
    return tirx.all(fits, weights <= b.greatest(rows, FEW))


def _tiles_of_chunk(product: LinearKernel, by_rows: b.Expr) -> b.Expr:
    """Return how many tiles a chunk has at most: half as many where all would fill the cache."""
    is_deep = tirx.all(by_rows, 2 * _chunk(product) > CACHED)
    return b.integer(TILES_PER_TASK) - T.Cast("int64", is_deep) * (TILES_PER_TASK // 2)


def _chunk(product: LinearKernel) -> b.Expr:
    """Return how many numbers a whole chunk of rows has."""
    return TILES_PER_TASK * product.tile.mr * product.k


def linear(
    tile: RegisterTile, weight_dtype: str, bias: bool = False, batched: bool = False, terms: int = 1
) -> b.PrimFunc:
    """Build ``y = x @ w.T (+ bias)``.

    Parameters of the kernel: x[rows, k] float32, w[ceil(n / nr), k, nr] (see ``pack_linear``),
    bias[n] float32 if asked for, y[rows, n] float32. In a batch, all but the bias have another
    dimension before these, of as many matrices. Sizes are learned at run time: one kernel for every
    layer is as fast, and compiled once.

    Weights of which ``terms`` lie side by side are w[ceil(n / nr), ceil(k / terms), nr, terms].
    Products of several rows round x to bfloat16 then.
    """
    dot = float_dot(tile, weight_dtype, terms)
    with b.kernel(f"linear_{weight_dtype}{'_batch' if batched else ''}{dot.suffix}") as kernel:
        batch = (kernel.dim("batch"),) if batched else ()
        rows, blocks, n, k = (kernel.dim(name) for name in ("rows", "blocks", "n", "k"))
        x = kernel.argument("x", (*batch, rows, k))
        shape = dot.matrix(kernel, *batch, blocks, k, tile.nr)
        w = kernel.argument("w", shape, b.STORAGE[weight_dtype])
        offsets = kernel.argument("bias", (n,)) if bias else None
        y = kernel.argument("y", (*batch, rows, n))
        product = LinearKernel(n, k, tile, dot, rows, x, w)
        _by_rows([Result((product,), Output(y, (offsets,)))], batch)
    return kernel.function


def linears(
    tile: RegisterTile,
    weight_dtypes: tuple[tuple[str, ...], ...],
    epilogues: tuple[Epilogue, ...],
    terms: int = 1,
) -> b.PrimFunc:
    """Build several results from products of the same rows, each with an epilogue.

    Parameters of the kernel: x[rows, k] float32; what ``epilogue.arguments`` declares, where a
    matrix is w[ceil(n / nr), k, nr] of its type, or of several ``terms`` as ``linear`` says. Rows
    are packed once for all.
    """
    dots = {dtype: float_dot(tile, dtype, terms) for own in weight_dtypes for dtype in own}
    suffix = next(iter(dots.values())).suffix
    with b.kernel(kernel_name(weight_dtypes, epilogues) + suffix) as kernel:
        rows, k = kernel.dim("rows"), kernel.dim("k")
        x = kernel.argument("x", (rows, k))

        def matrix(name: str, dtype: str) -> b.Buffer:
            shape = dots[dtype].matrix(kernel, kernel.dim(f"blocks_{name}"), k, tile.nr)
            return kernel.argument(name, shape, b.STORAGE[dtype])

        declared = arguments(kernel, rows, weight_dtypes, epilogues, matrix)
        results = [
            Result(
                tuple(
                    LinearKernel(output.n, k, tile, dots[dtype], rows, x, w)
                    for dtype, w in zip(own, matrices, strict=True)
                ),
                output,
            )
            for own, (matrices, output) in zip(weight_dtypes, declared, strict=True)
        ]
        _by_rows(results, ())
    return kernel.function


def _by_rows(results: Sequence[Result], batch: Sequence[b.Expr]) -> None:
    """One row, or many: by different loops."""
    rows = results[0].first.rows
    b.either(rows == 1, lambda: _one_row(results, batch), lambda: _many_rows(results, batch))
