"""Convolution on packed filters of float32."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.convolution_tiles import ImageTiles, best_tile, tiles_of
from maxtool.compiler.kernels.cpu.open_tiles import OpenTiles, open_tiles
from maxtool.compiler.kernels.cpu.pixel_output import as_lines, pixel_output
from maxtool.compiler.kernels.cpu.tiled_convolution import (
    Padding,
    Part,
    TiledConvolution,
    divided,
    each_tile_of,
)
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Phases, Window


@dataclass(frozen=True, slots=True)
class FloatTiles(TiledConvolution):
    """The buffers of a convolution of float32 while its kernel is built."""

    w: b.Buffer  # [blocks, window rows * columns * channels, block]
    factors: b.Buffer | None  # [batch, 1, 1, channels], of convolutions of single pixels

    def sums(self, image: b.Expr, start: list[b.Expr], block: b.Expr, part: Part) -> b.Registers:
        """The sums of a tile."""
        registers = b.Registers(self.pixels, self.tiles.block, self.lanes)
        registers.clear()
        window, channels = self.tiles.window, self.tiles.channels
        rows, columns = window.size
        stride, dilation = window.stride, window.dilation
        top = b.index(start[0] * stride[0])
        group = self.placed(block)[0] if self.tiles.groups > 1 else 0
        left = b.index(start[1] * (stride[1] * channels) + group * self.tiles.inner)
        above, beside = self._unused(block)
        # Neighbouring columns of a window are neighbours in memory unless it is dilated.
        apart = dilation[1] > 1 or self.tiles.groups > 1
        outer, inner = (columns, self.tiles.inner) if apart else (1, columns * channels)
        with T.serial(above, b.integer(rows)) as r, T.serial(b.integer(outer)) as s:
            source = b.index(top + r * dilation[0])
            first = b.index(left + s * (dilation[1] * channels))
            terms = b.index((r * outer + s) * inner)
            with T.serial(b.index(beside * channels), b.integer(inner)) as k:
                self.fetch_next(self.w, (block, terms + k), part)
                self._add(registers, (block, terms + k), (image, source, first + k))
        return registers

    def _unused(self, block: b.Expr) -> tuple[b.Expr, b.Expr]:
        """Rows and columns at the beginning of the window that a phase makes no use of."""
        phases, window = self.tiles.phases, self.tiles.window
        if phases is None:
            return b.integer(0), b.integer(0)
        own = divided(b.integer(self.placed(block)[0]), phases.stride[1])
        axes = zip(window.size, phases.size, phases.stride, own, strict=True)
        above, beside = (
            b.index(taps - b.quotient(size - phase + (stride - 1), stride))
            for taps, size, stride, phase in axes
        )
        return above, beside

    def _weight(self, term: b.Indices, image: b.Index, offset: int, lanes: int) -> b.Expr:
        """The weights of a term, times the factor of its channel if there is one."""
        weight = b.load(self.w, (*term, offset), lanes)
        if self.factors is None:
            return b.let(weight)
        return b.let(weight * b.splat(self.factors[image, 0, 0, term[-1]], lanes))

    def _add(self, registers: b.Registers, term: b.Indices, source: b.Indices) -> None:
        """Add the products of a term."""
        high, wide = self.tiles.size
        down, across = self.tiles.window.stride
        weights = [self._weight(term, source[0], *piece) for piece in registers.pieces]
        for i in range(high):
            for j in range(wide):
                number, row, column = source
                value = self.x[number, row + i * down, column + j * across * self.tiles.channels]
                spread = b.let(b.splat(value, self.lanes))
                for (offset, n), weight in zip(registers.pieces, weights, strict=True):
                    registers.add(i * wide + j, offset, n, spread * weight)


def direct_convolution(
    tile: RegisterTile,
    window: Window,
    image: tuple[int, int] | None,
    channels: int,
    features: int,
    groups: int,
    phases: Phases | None,
    result: tuple[int, int] | None,
    scaled: bool,
    after: ChainEpilogue,
) -> b.PrimFunc:
    """Build the convolution of images in float32, of any sizes if no ``image`` is given.

    Parameters of the kernel: x[batch, rows, columns, channels], w[blocks, terms, block] of all
    groups or phases (see ``tiles_of``), factors[batch, 1, 1, channels] if the input is ``scaled``,
    and what ``pixel_output`` declares.
    """
    with b.kernel("_".join(("convolution", *(step.op for step in after.steps)))) as kernel:
        tiles: ImageTiles | OpenTiles
        if image is None:
            best = best_tile(tile, window, channels, features // groups)
            tiles = open_tiles(kernel, window, channels, best, groups, phases)
        else:
            sizes = tile, window, image, channels, features
            tiles = tiles_of(*sizes, groups=groups, phases=phases, result=result)
        batch = kernel.dim("batch")
        x = kernel.argument("x", (batch, *tiles.image, channels))
        terms = window.size[0] * window.size[1] * tiles.inner
        blocks = tiles.parts * -(-features // groups // tiles.block)
        w = kernel.argument("w", (blocks, terms, tiles.block))
        shape = (batch, 1, 1, channels)
        factors = kernel.argument("factors", shape) if scaled else None
        output = pixel_output(kernel, batch, tiles.whole, tiles.lines, features, after)
        given = tiles.padded if tiles.is_product else tiles.image
        lines = as_lines(x, (batch, given[0], given[1] * channels))
        own = FloatTiles(tiles, tile.width, features, output, lines, w, factors)
        each_tile_of(own, batch, terms, Padding(given, b.splat(0.0, 1), tile.width))
    return kernel.function
