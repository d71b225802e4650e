"""A product of rows and packed weights: one row at a time, or tiles of rows in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.epilogue import Sums
from maxtool.compiler.kernels.cpu.fetch_ahead import AHEAD, LINE
from maxtool.compiler.kernels.cpu.float_dot import FloatDot

# Terms of the inner product, or pairs of them, summed before the sums leave the registers: the
# block of weights (BLOCK * nr) stays in the L2 cache, that of activations (BLOCK * mr) in L1.
BLOCK = 512

# Row tiles that one task walks with one column block.
TILES_PER_TASK = 8

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

    def fetch(self, block: b.Index, step: b.Index, offset: b.Index) -> None:
        """Fetch weights that are multiplied next into the second cache.

        The first of several tiles would wait for memory, and the others leave it idle.
        """
        b.prefetch(self.w, self.dot.place(*self.expert, block, step, offset))

    def weights(self, block: b.Index, step: b.Index, offset: int) -> b.Expr:
        """One vector of weights as they are multiplied."""
        return self.dot.operand(self.w, (*self.expert, block, step, offset))

    @property
    def block_size(self) -> tuple[int, int]:
        """Columns of a block, and of a vector."""
        return self.tile.nr, self.tile.width

    def row_sums(self, j: b.Expr, source: b.Expr) -> Sums:
        """One row of x times one column block, whose weights are fetched ahead.

        Several steps at once, as their sums do not wait for each other.
        """
        steps = max(1, CHAINS // self.vectors)
        sums = b.Registers(steps, self.tile.nr, self.tile.width)
        sums.clear()
        whole = T.Bind(b.quotient(self.k, self.dot.terms))
        rounds = T.Bind(b.quotient(whole, steps))
        with T.serial(rounds) as i:
            for chain in range(steps):
                step = b.index(i * steps + chain)
                self._fetch_ahead(j, step)
                self._add_terms(sums, (j, chain), source, step)
        with T.serial(steps * rounds, whole) as i:
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

    def _fetch_ahead(self, j: b.Expr, step: b.Expr) -> None:
        """Fetch the weights of a step into the first cache, well before they are read."""
        size = np.dtype(str(self.w.dtype)).itemsize * self.dot.terms  # of a column's
        later = step + b.integer(AHEAD // (size * self.tile.nr))
        for offset in range(0, self.tile.nr, LINE // size):
            b.prefetch(self.w, self.dot.place(*self.expert, j, later, offset), level=1)

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
            places = b.index(piece * BLOCK), b.index(t), count

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
    places: tuple[b.Expr, b.Expr, b.Expr],
) -> None:
    """Add steps, at most ``BLOCK``, to one register tile of sums.

    ``places`` are the first of the steps, that of the tile in sums, and how many tiles there are.
    Those of earlier steps are there, unless the first is 0.
    """
    start, t, count = places
    tile = product.tile
    registers = b.Registers(tile.mr, tile.nr, tile.width)
    registers.clear()
    steps = T.Bind(b.least(product.steps - start, BLOCK))
    share = T.Bind(b.quotient(b.integer(tile.nr), count))
    with product.dot.compiled(), T.serial(steps) as i:
        product.fetch(j, b.index(start + steps), b.index((t * steps + i) * share))
        product.add_step(registers, rows, j, b.index(start + i))
    with b.when(start > 0):
        for r, offset, width in registers.places:
            registers.add(r, offset, width, b.load(sums, (t, r, offset), width))
    for r, offset, width in registers.places:
        b.store(sums, registers.get(r, offset, width), (t, r, offset), width)
