"""x @ w.T with packed weights: one row at memory speed, many rows by a register tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.epilogue import (
    Output,
    Sums,
    arguments,
    each_task,
    kernel_name,
)
from maxtool.compiler.kernels.cpu.float_dot import FloatDot, float_dot
from maxtool.compiler.kernels.kernel_options import Epilogue

# Terms of the inner product, or pairs of them, summed before the sums leave the registers: the
# block of weights (BLOCK * nr) stays in the L2 cache, that of activations (BLOCK * mr) in L1.
BLOCK = 512

# Row tiles that one task walks with one column block.
TILES_PER_TASK = 8

# Numbers that a thread's L2 cache keeps, beside a column block of weights.
CACHED = 3 << 16

# Numbers of x that are too many to be read again for every column block.
MANY = 1 << 20

# Chunks of rows that are enough for threads to have as much work each as with column blocks.
CHUNKS = 4

# Low tiles are worth it where they have at most 8 of 9 rows that others would have: theirs take a
# little longer.
SAVED = 8

# Rows packed into tiles [tiles, steps, mr], the first tile to take, and how many: at most as above.
Tiles: TypeAlias = tuple[b.Buffer, b.Expr, b.Expr]

# The same, and the tile to take.
PackedRows: TypeAlias = tuple[b.Buffer, b.Expr]

# Rows of a tile at least: they are packed in squares.
LEAST = 4

# Independent sums that hide the latency of a multiply-add when there are few rows.
CHAINS = 8


@dataclass(frozen=True, slots=True)
class LinearKernel:
    """The buffers and sizes of one product while its kernel is built.

    ``at`` says which matrix of a batch x is, and ``expert`` which one w is; a kernel without a
    batch, or with one weight, has none.
    """

    n: b.Expr
    k: b.Expr
    tile: RegisterTile
    dot: FloatDot
    rows: b.Expr
    x: b.Buffer
    w: b.Buffer
    at: tuple[b.Expr, ...] = ()
    expert: tuple[b.Expr, ...] = ()

    @property
    def blocks(self) -> b.Expr:
        """Column blocks."""
        return b.ceildiv(self.n, self.tile.nr)

    @property
    def vectors(self) -> int:
        """Vectors in a row of a column block."""
        return self.tile.nr // self.tile.width

    @property
    def low(self) -> LinearKernel:
        """The same with low tiles, which pad few rows less: as low as latency allows."""
        return replace(self, tile=replace(self.tile, mr=max(LEAST, CHAINS // self.vectors)))

    @property
    def steps(self) -> b.Expr:
        """Terms of the inner product, or pairs of them where the weights lie so."""
        return b.ceildiv(self.k, self.dot.terms)

    def weights(self, block: b.Index, step: b.Index, offset: int) -> b.Expr:
        """One vector of weights as they are multiplied."""
        return self.dot.operand(self.w, (*self.expert, block, step, offset))

    @property
    def block_size(self) -> tuple[int, int]:
        """Columns of a block, and of a vector."""
        return self.tile.nr, self.tile.width

    def row_sums(self, j: b.Expr, source: b.Expr) -> Sums:
        """One row of x times one column block.

        Several stretches of k at once: their sums do not wait for each other, and their weights are
        streams that the CPU fetches ahead side by side: 12 to 15 percent faster from memory than
        one stream.
        """
        steps = max(1, CHAINS // self.vectors)
        sums = b.Registers(steps, self.tile.nr, self.tile.width)
        sums.clear()
        whole = T.Bind(b.quotient(self.k, self.dot.terms))
        stretch = T.Bind(b.quotient(whole, steps))
        with T.serial(stretch) as i:
            for step in range(steps):
                self._add_terms(sums, (j, step), source, b.index(step * stretch + i))
        with T.serial(steps * stretch, whole) as i:
            self._add_terms(sums, (j, 0), source, i)
        if self.dot.terms > 1:
            with b.when(whole * self.dot.terms < self.k):
                self._add_terms(sums, (j, 0), source, whole, terms=1)
        finished = b.scratch((self.tile.nr,))
        for offset, width in sums.pieces:
            total = sums.get(0, offset, width)
            for step in range(1, steps):
                total = total + sums.get(step, offset, width)
            b.store(finished, total, (offset,), width)
        return finished, ()

    def _add_terms(
        self,
        sums: b.Registers,
        index: tuple[b.Expr, int],
        source: b.Expr,
        step: b.Expr,
        terms: int | None = None,
    ) -> None:
        """Add the terms of a step in float32, or the first of them."""
        j, chain = index
        for offset, width in sums.pieces:
            weights = self.dot.widened(self.w, (*self.expert, j, step, offset))
            for term, weight in enumerate(weights[:terms]):
                value = self.x[(*self.at, source, step * self.dot.terms + term)]
                sums.add(chain, offset, width, b.splat(value, width) * weight)

    def packed(self, tiles: b.Expr) -> b.Buffer:
        """Memory for tiles of packed rows."""
        return b.workspace((tiles, self.steps, self.tile.mr), self.dot.packed_dtype)

    def pack_tile(self, packed: b.Buffer, t: b.Expr, sources: Sequence[b.Expr]) -> None:
        """Copy rows of x as they are multiplied."""
        rows = [(*self.at, source) for source in sources]
        subroutines.call(_pack_tile, [packed], t, self.dot, self.x, rows)

    def tile_sums(self, tiles: Tiles, j: b.Expr, is_low: b.Expr | None) -> b.Buffer:
        """Some row tiles times one column block, ``BLOCK`` steps at a time: [tiles, mr, nr].

        Those of low tiles, if they may be low and are, have fewer rows.
        """
        packed, first, count = tiles
        sums = b.scratch((TILES_PER_TASK, self.tile.mr, self.tile.nr))
        pieces = b.greatest(b.ceildiv(self.steps, BLOCK), 1)  # without terms the sums are zeros
        with T.serial(pieces) as piece, T.serial(count) as t:
            places = b.index(piece * BLOCK), b.index(t)

            def multiply(product: LinearKernel) -> None:
                subroutines.call(_multiply_tile, [sums], product, (packed, first + t), j, places)

            self.by_height(is_low, multiply)
        return sums

    def height(self, is_low: b.Expr | None) -> b.Expr:
        """Rows of a tile: a sum, as passes try each case of a selection wherever it is used."""
        high = b.integer(self.tile.mr)
        if is_low is None:
            return high
        return high - T.Cast("int64", is_low) * (self.tile.mr - self.low.tile.mr)

    def by_height(self, is_low: b.Expr | None, do: Callable[[LinearKernel], None]) -> None:
        """Do something with tiles of either height."""
        if is_low is None:
            do(self)
        else:
            b.either(is_low, lambda: do(self.low), lambda: do(self))

    def add_step(self, registers: b.Registers, rows: PackedRows, j: b.Expr, step: b.Expr) -> None:
        """Add the products of a step to a register tile of sums."""
        packed, tile_index = rows
        weights = [b.let(self.weights(j, step, at)) for at, width in registers.pieces]
        for r in range(registers.rows):
            value = b.let(b.splat(packed[tile_index, step, r], self.tile.width))
            for (offset, width), weight in zip(registers.pieces, weights, strict=True):
                sums = registers.get(r, offset, width)
                registers.set(r, offset, width, self.dot.multiply(sums, weight, value))


def _pack_tile(
    packed: b.Buffer, t: b.Expr, dot: FloatDot, x: b.Buffer, rows: Sequence[b.Indices]
) -> None:
    """Write rows of x as they are multiplied."""
    dot.pack(packed, t, x, rows)


def _multiply_tile(
    sums: b.Buffer,
    product: LinearKernel,
    rows: PackedRows,
    j: b.Expr,
    places: tuple[b.Expr, b.Expr],
) -> None:
    """Add steps, at most ``BLOCK``, to one register tile of sums.

    ``places`` are the first of the steps, and that of the tile in sums. Those of earlier steps are
    there, unless the first is 0.
    """
    start, t = places
    tile = product.tile
    registers = b.Registers(tile.mr, tile.nr, tile.width)
    registers.clear()
    with product.dot.compiled(), T.serial(b.least(product.steps - start, BLOCK)) as i:
        product.add_step(registers, rows, j, b.index(start + i))
    with b.when(start > 0):
        for r, offset, width in registers.places:
            registers.add(r, offset, width, b.load(sums, (t, r, offset), width))
    for r, offset, width in registers.places:
        b.store(sums, registers.get(r, offset, width), (t, r, offset), width)


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
    chunks = T.Bind(b.ceildiv(tiles, TILES_PER_TASK))
    tasks = [T.Bind(chunks * result.first.blocks) for result in results]
    by_rows = T.Bind(_stay_with_rows(one, chunks))

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

    Otherwise it walks all chunks with a column block, which is as good where rows are few, and
    better where not even a chunk of them stays in its cache.
    """
    chunk = TILES_PER_TASK * product.tile.mr * product.k
    fits = tirx.all(chunk <= CACHED, product.rows * product.k >= MANY)
    return tirx.all(fits, chunks >= CHUNKS)


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
