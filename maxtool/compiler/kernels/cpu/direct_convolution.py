"""Convolution on packed filters: a register tile of pixels and features, on the image as it is.

Channels lie last, so that the terms of a row of the window are neighbours: the inner loop walks
them as a product walks its rows. Padding is a copy of the image with zeros around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.convolution_tiles import ImageTiles, tiles_of
from maxtool.compiler.kernels.cpu.pixel_output import PixelOutput, as_lines, pixel_output
from maxtool.compiler.kernels.kernel_options import AfterConvolution, Window


@dataclass(frozen=True, slots=True)
class TiledConvolution:
    """The buffers and sizes of a convolution while its kernel is built."""

    tiles: ImageTiles
    lanes: int
    features: int
    x: b.Buffer  # [batch * padded rows, columns * channels]
    w: b.Buffer  # [blocks, window rows * columns * channels, block]
    factors: b.Buffer | None  # [batch, 1, 1, channels], of convolutions of single pixels
    output: PixelOutput

    @property
    def blocks(self) -> int:
        """Blocks of features."""
        return -(-self.features // self.tiles.block)

    def chunk(self, image: b.Expr, chunk: b.Expr, block: b.Expr) -> None:
        """Compute the features of a block for a part of an image."""
        down, across = self.tiles.counts
        chunks = self.tiles.chunks(self.blocks)
        first = b.index(b.quotient(chunk * (down * across), chunks))
        last = b.index(b.quotient((chunk + 1) * (down * across), chunks))
        with T.serial(first, last) as at:
            row = b.index(b.quotient(at, across))
            column = b.index(at - row * across)
            places = zip((row, column), self.tiles.size, self.tiles.output, strict=True)
            start = [b.index(b.least(i * size, whole - size)) for i, size, whole in places]
            self._tile(image, start, block)

    def _tile(self, image: b.Expr, start: list[b.Expr], block: b.Expr) -> None:
        high, wide = self.tiles.size
        rest = self.features % self.tiles.block

        def place(p: b.Index) -> tuple[b.Indices, b.Expr]:
            i, j = (p // wide, p % wide) if isinstance(p, int) else _divided(p, wide)
            first = block * self.tiles.block
            return (image, start[0] + i, (start[1] + j) * self.features + first), first

        self.output.fetch(high * wide, self.tiles.block, place)
        registers = b.Registers(high * wide, self.tiles.block, self.lanes)
        registers.clear()
        self._sum(registers, image, start, block)

        def store(count: int) -> None:
            self.output.store_tile(registers, b.widths(count, self.lanes), place)

        if rest:
            is_last = block == self.blocks - 1
            b.either(is_last, lambda: store(rest), lambda: store(self.tiles.block))
        else:
            store(self.tiles.block)

    def _sum(
        self,
        registers: b.Registers,
        image: b.Expr,
        start: list[b.Expr],
        block: b.Expr,
    ) -> None:
        """Add the products of all terms."""
        window, channels = self.tiles.window, self.tiles.channels
        rows, columns = window.size
        stride, dilation = window.stride, window.dilation
        top = b.index(start[0] * stride[0])
        left = b.index(start[1] * (stride[1] * channels))
        # Neighbouring columns of a window are neighbours in memory unless it is dilated.
        outer, inner = (columns, channels) if dilation[1] > 1 else (1, columns * channels)
        with T.serial(b.integer(rows)) as r, T.serial(b.integer(outer)) as s:
            source = b.index(top + r * dilation[0])
            first = b.index(left + s * (dilation[1] * channels))
            terms = b.index((r * outer + s) * inner)
            with T.serial(b.integer(inner)) as k:
                self._add(registers, (block, terms + k), (image, source, first + k))

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


def _divided(p: b.Expr, by: int) -> tuple[b.Expr, b.Expr]:
    """Quotient and remainder."""
    whole = b.index(b.quotient(p, by))
    return whole, b.index(p - whole * by)


def direct_convolution(
    tile: RegisterTile,
    window: Window,
    image: tuple[int, int],
    channels: int,
    features: int,
    scaled: bool,
    after: AfterConvolution,
) -> b.PrimFunc:
    """Build the convolution of images of known sizes in float32.

    Parameters of the kernel: x[batch, rows, columns, channels], w[blocks, terms, block] (see
    ``tiles_of``), factors[batch, 1, 1, channels] if the input is ``scaled``, and what
    ``pixel_output`` declares.
    """
    tiles = tiles_of(tile, window, image, channels, features)
    with b.kernel("_".join(("convolution", *(step.op for step in after.steps)))) as kernel:
        batch = kernel.dim("batch")
        x = kernel.argument("x", (batch, *image, channels))
        terms = window.size[0] * window.size[1] * channels
        w = kernel.argument("w", (-(-features // tiles.block), terms, tiles.block))
        shape = (batch, 1, 1, channels)
        factors = kernel.argument("factors", shape) if scaled else None
        output = pixel_output(kernel, batch, tiles.whole, tiles.output, features, after)
        given = tiles.padded if tiles.is_product else image
        lines = as_lines(x, (batch, given[0], given[1] * channels))
        source = _with_padding(tiles, batch, lines, tile.width) if tiles.is_padded else lines
        own = TiledConvolution(tiles, tile.width, features, source, w, factors, output)
        parts = tiles.chunks(own.blocks)

        def task(i: b.Expr) -> None:
            part = b.index(b.quotient(i, own.blocks))
            number = b.index(b.quotient(part, parts))
            own.chunk(number, b.index(part - number * parts), b.index(i - part * own.blocks))

        work = prod(tiles.output) * features * terms // (parts * own.blocks)
        b.each_image(batch, parts * own.blocks, work, task)
    return kernel.function


def _with_padding(tiles: ImageTiles, batch: b.Expr, x: b.Buffer, lanes: int) -> b.Buffer:
    """Copy images, with zeros around each."""
    (height, width), (rows, columns), channels = tiles.image, tiles.padded, tiles.channels
    top, left = tiles.window.before[0], tiles.window.before[1] * channels
    whole, all_of_it = width * channels, columns * channels
    padded = b.workspace((batch, rows, columns * channels))

    def copy(i: b.Expr) -> None:
        number = b.index(b.quotient(i, rows))
        at = b.index(i - number * rows)

        def fill(first: int, count: int, value: Callable[[b.Index, int], b.Expr]) -> None:
            def write(offset: b.Index, width: int) -> None:
                b.store(padded, value(offset, width), (number, at, first + offset), width)

            b.each_vector(count, lanes, write)

        def nothing(_: b.Index, width: int) -> b.Expr:
            return b.splat(0.0, width)

        def row() -> None:
            fill(0, left, nothing)
            fill(left, whole, lambda o, width: b.load(x, (number, at - top, o), width))
            fill(left + whole, all_of_it - left - whole, nothing)

        inside = tirx.all(at >= top, at < top + height)
        b.either(inside, row, lambda: fill(0, all_of_it, nothing))

    b.each_image(batch, rows, columns * channels, copy)
    return padded
