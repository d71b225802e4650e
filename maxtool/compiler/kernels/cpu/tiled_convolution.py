"""Convolutions in tiles: a register tile of pixels and features, on the image as it is.

Channels lie last, so that the terms of a row of the window are neighbours: the inner loop walks
them as a product walks its rows. Padding is a copy of the image with a number around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.convolution_tiles import ImageTiles
from maxtool.compiler.kernels.cpu.open_tiles import OpenTiles
from maxtool.compiler.kernels.cpu.pixel_output import PixelOutput, as_lines

# Which tile of a task it is, of how many.
Part: TypeAlias = tuple[b.Expr, b.Expr]

# The row and the column of the result of a tile's pixel.
PlaceOf: TypeAlias = Callable[[b.Index], tuple[b.Expr, b.Expr]]

# What becomes of a vector of a width when it is copied.
Change: TypeAlias = Callable[[b.Expr, int], b.Expr]


@dataclass(frozen=True, slots=True)
class TiledConvolution(ABC):
    """The sizes of a convolution while its kernel is built, and its result."""

    tiles: ImageTiles | OpenTiles
    lanes: int
    features: int
    output: PixelOutput
    x: b.Buffer  # [batch * padded rows, columns * channels]

    @property
    def blocks(self) -> int:
        """Blocks of features of all groups or phases."""
        return self.tiles.parts * self._blocks

    @property
    def _features(self) -> int:
        """Features of a group; a phase has all of them."""
        return self.features // self.tiles.groups

    @property
    def _blocks(self) -> int:
        """Blocks of the features of a group or a phase."""
        return -(-self._features // self.tiles.block)

    def placed(self, block: b.Expr) -> tuple[b.Index, b.Expr]:
        """Return the group or phase of a block, and its number there."""
        return (0, block) if self.tiles.parts == 1 else divided(block, self._blocks)

    @property
    def pixels(self) -> int:
        """Pixels of a tile."""
        return prod(self.tiles.size)

    @abstractmethod
    def sums(self, image: b.Expr, start: list[b.Expr], block: b.Expr, part: Part) -> b.Registers:
        """The sums of the tile that starts at a row and a column, of a block of features."""

    def fetch_next(self, weights: b.Buffer, term: b.Indices, part: Part) -> None:
        """Fetch a share of the next block's weights of a term into the second cache.

        The first tile of a block would wait for memory, and the others leave it idle.
        """
        block, index = term
        which, count = part
        terms, width = weights.shape[-2:]
        share = b.quotient(width, count)
        b.prefetch(weights, (block + 1, 0, (which * terms + index) * share))

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
            start = [self._start(i * size, whole - size) for i, size, whole in places]
            self._tile(image, start, block, (b.index(at - first), b.index(last - first)))

    def _start(self, at: b.Expr, last: b.Index) -> b.Expr:
        """The place of a tile: the last ones overlap, and a row may have less than one."""
        place = b.least(at, last)
        return b.index(b.greatest(place, 0) if isinstance(self.tiles, OpenTiles) else place)

    def _tile(self, image: b.Expr, start: list[b.Expr], block: b.Expr, part: Part) -> None:
        rest = self._features % self.tiles.block
        owner, number = self.placed(block)
        first = number * self.tiles.block
        if self.tiles.groups > 1:
            first = b.integer(owner) * self._features + first
        pixel = self._pixel(start, owner)

        def place(p: b.Index) -> tuple[b.Indices, b.Expr]:
            row, column = pixel(p)
            return (image, row, column * self.features + first), first

        self.output.fetch(self.pixels, self.tiles.block, place)
        registers = self.sums(image, start, block, part)

        def store(count: int) -> None:
            pieces = b.widths(count, self.lanes)
            self.output.store_tile(registers, pieces, place, self._exists(pixel))

        if rest:
            is_last = number == self._blocks - 1
            b.either(is_last, lambda: store(rest), lambda: store(self.tiles.block))
        else:
            store(self.tiles.block)

    def _pixel(self, start: list[b.Expr], owner: b.Index) -> PlaceOf:
        """Return what gives the row and the column of the result of a tile's pixel."""
        wide, phases = self.tiles.size[1], self.tiles.phases

        def of_tile(p: b.Index) -> tuple[b.Expr, b.Expr]:
            i, j = (p // wide, p % wide) if isinstance(p, int) else divided(p, wide)
            return start[0] + i, start[1] + j

        if phases is None:
            return of_tile
        own = divided(b.integer(owner), phases.stride[1])

        def of_phase(p: b.Index) -> tuple[b.Expr, b.Expr]:
            both = zip(of_tile(p), phases.stride, own, phases.before, strict=True)
            row, column = (at * step + phase - before for at, step, phase, before in both)
            return b.index(row), b.index(column)

        return of_phase

    def _exists(self, pixel: PlaceOf) -> Callable[[b.Index], b.Expr] | None:
        """Return what gives whether a pixel of a tile is one of the result; None if all are."""
        tiles = self.tiles
        if isinstance(tiles, ImageTiles) and _are_whole(tiles):
            return None

        def exists(p: b.Index) -> b.Expr:
            if tiles.phases is None:
                return pixel(p)[1] < tiles.lines[1]
            both = zip(pixel(p), tiles.lines, strict=True)
            return tirx.all(*(tirx.all(at >= 0, at < size) for at, size in both))

        return exists


def _are_whole(tiles: ImageTiles) -> bool:
    """Return whether every pixel of a tile is one of the result."""
    phases = tiles.phases
    if phases is None:
        return True
    sizes = zip(tiles.output, phases.stride, tiles.lines, strict=True)
    return not any(phases.before) and all(n * step == size for n, step, size in sizes)


def divided(p: b.Expr, by: int) -> tuple[b.Expr, b.Expr]:
    """Quotient and remainder."""
    whole = b.index(b.quotient(p, by))
    return whole, b.index(p - whole * by)


def each_tile(
    own: TiledConvolution,
    batch: b.Expr,
    terms: int,
    other: tuple[b.Expr, TiledConvolution] | None = None,
) -> None:
    """Compute all tiles of all images, whose sums have so many terms.

    Where the condition of an ``other`` one holds, that is computed instead.
    """
    parts = own.tiles.chunks(own.blocks)

    def task(i: b.Expr) -> None:
        part = b.index(b.quotient(i, own.blocks))
        number = b.index(b.quotient(part, parts))
        place = number, b.index(part - number * parts), b.index(i - part * own.blocks)

        def compute(which: TiledConvolution) -> None:
            subroutines.call(_chunk, [own.output.y], which, *place)

        if other is None:
            compute(own)
        else:
            b.either(other[0], lambda: compute(other[1]), lambda: compute(own))

    sums = prod(own.tiles.output) * (own.features * terms)
    work = sums // (parts * own.blocks) if isinstance(sums, int) else b.quotient(sums, parts)
    b.each_image(batch, parts * own.blocks, work, task)


def _chunk(_: b.Buffer, own: TiledConvolution, image: b.Expr, chunk: b.Expr, block: b.Expr) -> None:
    own.chunk(image, chunk, block)


@dataclass(frozen=True, slots=True)
class Padding:
    """Copies of images with a number around each."""

    given: tuple[b.Index, b.Index]  # rows and columns of an image
    fill: b.Expr  # the number
    lanes: int  # elements that are copied at once
    beyond: int = 0  # elements behind an image that are read
    change: Change | None = None  # of what is copied
    always: bool = False  # whether images are copied that have no padding


def each_tile_of(own: TiledConvolution, batch: b.Expr, terms: int, padding: Padding) -> None:
    """Compute all tiles of all images, which are copied first if that is needed.

    Tiles would read beyond images of any size whose rows have fewer pixels.
    """
    tiles = own.tiles
    if tiles.window.is_padded or padding.always:
        each_tile(replace(own, x=_copied(own, batch, padding)), batch, terms)
    elif isinstance(tiles, OpenTiles):
        # What changes a copy is otherwise done to what is read.
        copy = _copied(own, batch, replace(padding, change=None), tiles.is_narrow)
        each_tile(own, batch, terms, (tiles.is_narrow, replace(own, x=copy)))
    else:
        each_tile(own, batch, terms)


def _copied(
    own: TiledConvolution, batch: b.Expr, padding: Padding, condition: b.Expr | None = None
) -> b.Buffer:
    """The images with what is around them; nothing is copied where a condition does not hold."""
    tiles, fill, x = own.tiles, padding.fill, own.x
    (height, width), (rows, columns), channels = padding.given, tiles.padded, tiles.channels
    top, left = tiles.window.before[0], tiles.window.before[1] * channels
    whole, all_of_it = width * channels, columns * channels
    beyond = padding.beyond + (tiles.room if isinstance(tiles, OpenTiles) else 0)
    room, copied = batch * (rows * all_of_it + beyond), batch
    if condition is not None:
        room, copied = T.Cast("int64", condition) * room, T.Cast("int64", condition) * batch
    memory = b.workspace((room,), str(fill.ty))
    padded = as_lines(memory, (batch, rows, all_of_it))

    def copy(i: b.Expr) -> None:
        number = b.index(b.quotient(i, rows))
        at = b.index(i - number * rows)

        def write(first: b.Index, count: b.Index, value: Callable[..., b.Expr]) -> None:
            def part(offset: b.Index, width: int) -> None:
                b.store(padded, value(offset, width), (number, at, first + offset), width)

            b.each_neighbour(count, padding.lanes, part)

        def nothing(_: b.Index, width: int) -> b.Expr:
            return b.splat(fill, width)

        def given_part(offset: b.Index, width: int) -> b.Expr:
            value = b.load(x, (number, at - top, offset), width)
            return value if padding.change is None else padding.change(b.let(value), width)

        def row() -> None:
            write(0, left, nothing)
            write(left, whole, given_part)
            write(left + whole, all_of_it - left - whole, nothing)

        inside = tirx.all(at >= top, at < top + height)
        b.either(inside, row, lambda: write(0, all_of_it, nothing))

    b.each_image(copied, rows, columns * channels, copy)
    return padded
