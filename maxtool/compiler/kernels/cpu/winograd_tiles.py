"""The tiles of Winograd's convolutions, and where they pay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu.convolution_tiles import FEW, tiles_of, vectors_of
from maxtool.compiler.kernels.kernel_options import Window
from maxtool.compiler.winograd import TAPS, WINOGRAD, Winograd

# Features for which a task computes tiles, which it transforms first.
PART = 128

# Elements of a cache line: rows that lie one more apart do not share their places in a cache.
LINE = 16

# What else takes time, in multiplications: to transform an input or an output of a product, and to
# read a weight from memory.
TRANSFORM, WEIGHT = 5, 13

# Registers that hold what products have read, where they read no memory themselves.
SPARE = 4

# How many times as long a convolution has to take without it.
LEAST_GAIN = 1.2


@dataclass(frozen=True)
class WinogradTiles:
    """Tiles of the output of images.

    Attributes:
        winograd: The transform.
        window: The window of an output pixel.
        image: Rows and columns of the input.
        channels: Those of the input.
        features: Those of the output.
        block: Features that are summed side by side.
        most: Tiles that are multiplied at once, at most.
    """

    winograd: Winograd
    window: Window
    image: tuple[int, int]
    channels: int
    features: int
    block: int
    most: int

    @cached_property
    def output(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        window = self.window
        around = zip(self.image, window.before, window.after, strict=True)
        rows, columns = (size + before + after - TAPS + 1 for size, before, after in around)
        return rows, columns

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Rows and columns of tiles of an image."""
        rows, columns = (-(-size // self.winograd.outputs) for size in self.output)
        return rows, columns

    @property
    def blocks(self) -> int:
        """Blocks of features."""
        return -(-self.features // self.block)

    @cached_property
    def rows(self) -> int:
        """Tiles of a strip, which are multiplied at once: those that cover an image best."""
        most = min(self.most, prod(self.counts))
        return min(range(1, most + 1), key=lambda rows: (self._covered(rows), -rows))

    def _covered(self, rows: int) -> int:
        return -(-prod(self.counts) // rows) * max(FEW, rows)

    @property
    def pitch(self) -> int:
        """Elements from one transformed tile to the next."""
        return self.winograd.products * self.channels + LINE

    @property
    def parts(self) -> int:
        """Parts of the features, for each of which tiles are transformed anew."""
        return min(self.blocks, max(1, self.features // PART))

    def cost(self, images: int) -> float:
        """Return multiplications for a channel and a feature, and what takes as long as some."""
        transforms = 1 + TRANSFORM / self.channels + TRANSFORM / self.features
        return self.winograd.products * (images * self._covered(self.rows) * transforms + WEIGHT)


def winograd_tiles_of(
    tile: RegisterTile,
    window: Window,
    image: tuple[int, int],
    channels: int,
    features: int,
    outputs: int,
) -> WinogradTiles:
    """Return tiles of so many rows of outputs; sums take as many registers as in ``tiles_of``."""
    spare = 0 if tile.reads_memory else SPARE
    vectors, most = vectors_of(replace(tile, registers=tile.registers - spare), features)
    block = vectors * tile.width
    return WinogradTiles(WINOGRAD[outputs], window, image, channels, features, block, most)


def that_pay(
    tile: RegisterTile,
    window: Window,
    image: tuple[int, int],
    channels: int,
    features: int,
    images: int,
) -> list[WinogradTiles]:
    """Return the tiles by which a convolution of so many images takes less time, the best first."""
    is_fit = window.size == (TAPS, TAPS) and max(*window.stride, *window.dilation) == 1
    if not is_fit or min(channels, features) < tile.width:
        return []
    sizes = tile, window, image, channels, features
    direct = TAPS**2 * (images * tiles_of(*sizes).cost + WEIGHT)
    found = [winograd_tiles_of(*sizes, outputs) for outputs in WINOGRAD]
    better = [each for each in found if LEAST_GAIN * each.cost(images) < direct]
    return sorted(better, key=lambda each: each.cost(images))
