"""Convolution of 3 x 3 windows by Winograd's transforms, in float32.

Tiles of the images are transformed first, and then multiplied with transformed filters: a strip of
tiles are the rows of a product for each place of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.pixel_output import PixelOutput, as_lines, pixel_output
from maxtool.compiler.kernels.cpu.winograd_tiles import WinogradTiles, winograd_tiles_of
from maxtool.compiler.kernels.cpu.winograd_transforms import of_inputs, of_products
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Window
from maxtool.compiler.winograd import Winograd


@dataclass(frozen=True, slots=True)
class WinogradConvolution:
    """The buffers of a convolution while its kernel is built."""

    tiles: WinogradTiles
    lanes: int
    channels: int
    features: int
    image: tuple[int, int]
    output: PixelOutput
    x: b.Buffer  # [batch, rows, columns * channels]
    w: b.Buffer  # [blocks, places of a tile, channels, block]

    @property
    def winograd(self) -> Winograd:
        """The transform."""
        return self.tiles.winograd

    def place(self, tile: b.Expr) -> tuple[b.Expr, b.Expr, b.Expr]:
        """The image of a tile among several, and the row and column of its first output."""
        down, across = self.tiles.counts
        number = b.index(b.quotient(tile, down * across))
        rest = b.index(tile - number * (down * across))
        row = b.index(b.quotient(rest, across))
        step = self.winograd.outputs
        return number, b.index(row * step), b.index((rest - row * across) * step)

    def task(self, v: b.Buffer, sums: b.Buffer, start: b.Expr, part: b.Expr) -> None:
        """Compute the outputs of a part of the features for the strip of tiles that starts there.

        Whoever multiplies tiles transforms them: fetching them from another core takes longer. The
        memory is v[rows, places * channels] for these, and sums[places, rows, block].
        """
        with T.serial(b.integer(self.tiles.rows)) as r:
            self.transform((v, r), b.index(start + r))
        parts = self.tiles.parts
        first = b.index(b.quotient(part * self.tiles.blocks, parts))
        last = b.index(b.quotient((part + 1) * self.tiles.blocks, parts))
        with T.serial(first, last) as block:
            self.multiply(v, sums, block)
            self.finish(sums, start, block)

    def transform(self, to: tuple[b.Buffer, b.Expr], tile: b.Expr) -> None:
        """Transform the inputs of a tile, to a row of memory."""
        image, row, column = self.place(tile)
        top = b.index(row - self.tiles.window.before[0])
        left = b.index(column - self.tiles.window.before[1])
        size = self.winograd.inputs
        rows, columns = self.image
        inside = tirx.all(top >= 0, left >= 0, top + size <= rows, left + size <= columns)

        def part(offset: b.Index, width: int) -> None:
            half = b.scratch((size, size, width))

            def keep(j: b.Expr, values: list[b.Expr]) -> None:
                for i, value in enumerate(of_inputs(self.winograd, values, width)):
                    b.store(half, value, (i, j, 0), width)

            def read(i: int, j: b.Expr) -> b.Expr:
                return b.load(self.x, (image, top + i, (left + j) * self.channels + offset), width)

            def whole() -> None:
                with T.serial(b.integer(size)) as j:
                    keep(j, [b.let(read(i, j)) for i in range(size)])

            def edge() -> None:
                zero = b.splat(0.0, width)
                with T.serial(b.integer(size)) as j:
                    at = b.index(left + j)
                    known = tirx.all(at >= 0, at < columns)
                    keep(
                        j,
                        [
                            b.let(
                                T.if_then_else(
                                    tirx.all(known, top + i >= 0, top + i < rows), read(i, j), zero
                                )
                            )
                            for i in range(size)
                        ],
                    )

            b.either(inside, whole, edge)
            with T.serial(b.integer(size)) as i:
                values = [b.load(half, (i, j, 0), width) for j in range(size)]
                for j, value in enumerate(of_inputs(self.winograd, values, width)):
                    at = (i * size + j) * self.channels + offset
                    b.store(to[0], value, (to[1], at), width)

        b.each_vector(self.channels, self.lanes, part)

    def multiply(self, v: b.Buffer, sums: b.Buffer, block: b.Expr) -> None:
        """Multiply a strip of transformed tiles with the filters of a block of features."""
        with T.serial(b.integer(self.winograd.products)) as at:
            registers = b.Registers(self.tiles.rows, self.tiles.block, self.lanes)
            registers.clear()
            base = b.index(at * self.channels)
            with T.serial(b.integer(self.channels)) as k:
                weights = [
                    b.let(b.load(self.w, (block, at, k, offset), lanes))
                    for offset, lanes in registers.pieces
                ]
                for r in range(self.tiles.rows):
                    spread = b.let(b.splat(v[r, base + k], self.lanes))
                    for (offset, lanes), weight in zip(registers.pieces, weights, strict=True):
                        registers.add(r, offset, lanes, spread * weight)
            for r, offset, lanes in registers.places:
                b.store(sums, registers.get(r, offset, lanes), (at, r, offset), lanes)

    def finish(self, sums: b.Buffer, start: b.Expr, block: b.Expr) -> None:
        """Transform the products of a strip and a block, and write its outputs."""
        width = self.tiles.block

        def store(count: int) -> None:
            with T.serial(b.integer(self.tiles.rows)) as r:
                self._store((sums, r), b.index(start + r), block, count)

        rest = self.features % width
        if rest:
            is_last = block == self.tiles.blocks - 1
            b.either(is_last, lambda: store(rest), lambda: store(width))
        else:
            store(width)

    def _store(
        self,
        source: tuple[b.Buffer, b.Expr],
        tile: b.Expr,
        block: b.Expr,
        count: int,
    ) -> None:
        """Transform the products of a tile, and write its outputs."""
        sums, r = source
        image, row, column = self.place(tile)
        size, outputs = self.winograd.inputs, self.winograd.outputs
        high = b.index(b.least(outputs, self.tiles.output[0] - row))
        wide = b.index(b.least(outputs, self.tiles.output[1] - column))

        def part(offset: b.Index, width: int) -> None:
            half = b.scratch((outputs, size, width))
            line = b.scratch((outputs, width))
            with T.serial(b.integer(size)) as j:
                values = [
                    b.let(b.load(sums, (i * size + j, r, offset), width)) for i in range(size)
                ]
                for i, value in enumerate(of_products(self.winograd, values, width)):
                    b.store(half, value, (i, j, 0), width)
            with T.serial(high) as i:
                values = [b.let(b.load(half, (i, j, 0), width)) for j in range(size)]
                for j, value in enumerate(of_products(self.winograd, values, width)):
                    b.store(line, value, (j, 0), width)
                with T.serial(wide) as j:
                    channel = b.index(block * self.tiles.block + offset)
                    at = (image, row + i, (column + j) * self.features + channel)
                    self.output.store(b.let(b.load(line, (j, 0), width)), at, channel, width)

        b.each_vector(count, self.lanes, part)


def _task(
    _: b.Buffer,
    v: b.Buffer,
    sums: b.Buffer,
    own: WinogradConvolution,
    start: b.Expr,
    part: b.Expr,
) -> None:
    own.task(v, sums, start, part)


def winograd_convolution(
    tile: RegisterTile,
    window: Window,
    image: tuple[int, int],
    channels: int,
    features: int,
    outputs: int,
    after: ChainEpilogue,
) -> b.PrimFunc:
    """Build the convolution of images of known sizes in float32, by tiles of so many outputs.

    Parameters of the kernel: x[batch, rows, columns, channels], w[blocks, places, channels, block]
    (see ``winograd_tiles_of``), and what ``pixel_output`` declares.
    """
    tiles = winograd_tiles_of(tile, window, image, channels, features, outputs)
    with b.kernel("_".join(("winograd", *(step.op for step in after.steps)))) as kernel:
        batch = kernel.dim("batch")
        x = kernel.argument("x", (batch, *image, channels))
        w = kernel.argument("w", (tiles.blocks, tiles.winograd.products, channels, tiles.block))
        output = pixel_output(kernel, batch, tiles.output, tiles.output, features, after)
        lines = as_lines(x, (batch, image[0], image[1] * channels))
        down, across = tiles.counts
        total = T.Bind(batch * (down * across))
        own = WinogradConvolution(tiles, tile.width, channels, features, image, output, lines, w)
        strips = T.Bind(b.ceildiv(total, tiles.rows))

        def task(i: b.Expr) -> None:
            part = b.index(b.quotient(i, strips))
            start = b.least((i - part * strips) * tiles.rows, total - tiles.rows)
            v = b.workspace((tiles.rows, tiles.pitch))
            sums = b.workspace((tiles.winograd.products, tiles.rows, tiles.block))
            subroutines.call(_task, [output.y, v, sums], own, b.index(start), part)

        b.each(strips * tiles.parts, task, threads=True)
    return kernel.function
