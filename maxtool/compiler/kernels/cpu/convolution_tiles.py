"""The tiles of a convolution: how many pixels and features are summed in registers at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.kernel_options import Phases, Window

# Vectors of features side by side, at most: each is a register for a weight.
MOST_VECTORS = 6

# Vectors of features that are best, and where pixels get in each other's way.
TALL, LOW = 2, 4

# Pixels of a tile below which it takes no less time.
FEW = 6

# Neighbours of a tile of images of any size: they divide more sizes than larger numbers do.
OPEN_PIXELS = 8

# Bytes after which lines share their places in the first cache, and how many of them it keeps.
SAME_SET, WAYS = 4096, 8

# Bytes of an image that a thread walks with all filters, so that they stay in its L2 cache.
CHUNK = 1 << 18

# Parts of an image that are worth handing out where its filters are few.
LEAST_TASKS = 16


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Tiles of the output of one image, as far as they do not depend on its size.

    Attributes:
        window: The window of an output pixel.
        channels: Those of the input.
        block: Features that are summed side by side.
        most: Pixels of a tile, at most.
        groups: Parts of the channels, each convolved for itself.
        phases: Parts of the result, each convolved for itself.
    """

    window: Window
    channels: int
    block: int
    most: int
    groups: int = 1
    phases: Phases | None = None

    @property
    def parts(self) -> int:
        """Groups or phases: parts that have blocks of the filter of their own."""
        return self.groups if self.phases is None else self.phases.count

    @property
    def inner(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    @property
    def is_product(self) -> bool:
        """Return whether every pixel is a row of a product, and an image may be one long line."""
        return self.window.is_pixel and self.phases is None


@dataclass(frozen=True, kw_only=True)
class ImageTiles(Tiles):
    """Tiles of the output of an image of known sizes.

    Attributes:
        image: Rows and columns of the input.
        size_in_bytes: Bytes of an element of the image.
        result: Rows and columns of the result of a transposed convolution.
    """

    image: tuple[int, int]
    size_in_bytes: int = 4
    result: tuple[int, int] | None = None

    @cached_property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of the input with its padding; one row if pixels are rows."""
        if self.is_product:
            return 1, self.image[0] * self.image[1]
        around = zip(self.image, self.window.before, self.window.after, strict=True)
        rows, columns = (size + before + after for size, before, after in around)
        return rows, columns

    @property
    def whole(self) -> tuple[int, int]:
        """Rows and columns of the result as others see it."""
        return self.image if self.is_product else self.lines

    @property
    def lines(self) -> tuple[int, int]:
        """Rows and columns of the result as the kernel writes them."""
        return self.output if self.result is None else self.result

    @cached_property
    def output(self) -> tuple[int, int]:
        """Rows and columns of the result, of each phase if there are several."""
        window = self.window
        spread = zip(self.padded, window.size, window.stride, window.dilation, strict=True)
        rows, columns = (
            (size - reach * (taps - 1) - 1) // step + 1 for size, taps, step, reach in spread
        )
        return rows, columns

    @cached_property
    def size(self) -> tuple[int, int]:
        """Rows and columns of a tile: those that cover the output with the least of them."""
        rows, columns = self.output
        shapes = [
            (high, wide)
            for high in range(1, min(self.most, rows) + 1)
            for wide in range(1, min(self.most // high, columns) + 1)
        ]
        return min(shapes, key=lambda shape: (self._cost(*shape), -shape[0] * shape[1]))

    def _cost(self, high: int, wide: int) -> int:
        rows, columns = self.output
        return -(-rows // high) * -(-columns // wide) * max(FEW, high * wide)

    @property
    def cost(self) -> int:
        """Pixels that are computed; a tile of few takes as long as one of ``FEW``."""
        return self._cost(*self.size)

    @property
    def counts(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        pairs = zip(self.output, self.size, strict=True)
        down, across = (-(-whole // part) for whole, part in pairs)
        return down, across

    @property
    def is_crowded(self) -> bool:
        """Return whether pixels of a tile share places in the first cache that are too few."""
        return prod(self.size) > self.places

    @property
    def places(self) -> int:
        """Pixels of a row that find a place in the first cache, where lines share some."""
        return _places(self.window, self.channels, self.size_in_bytes)

    def chunks(self, blocks: int) -> int:
        """Return how many parts an image has, each of some tiles, for so many feature blocks."""
        count = self.counts[0] * self.counts[1]
        rows, columns = self.padded
        by_cache = -(-rows * columns * self.channels * self.size_in_bytes // CHUNK)
        return max(1, min(count, max(by_cache, -(-LEAST_TASKS // blocks))))


def tiles_of(
    tile: RegisterTile,
    window: Window,
    image: tuple[int, int],
    channels: int,
    features: int,
    size_in_bytes: int = 4,
    groups: int = 1,
    phases: Phases | None = None,
    result: tuple[int, int] | None = None,
) -> ImageTiles:
    """Return the tiles for so many features: of neighbours that do not crowd each other out.

    The sums of a tile take all registers but those for the weights of a term and for one pixel.
    """

    def tiles(best: int) -> ImageTiles:
        vectors, most = vectors_of(tile, features // groups, best)
        return ImageTiles(
            window=window,
            image=image,
            channels=channels,
            block=vectors * tile.width,
            most=most,
            size_in_bytes=size_in_bytes,
            groups=groups,
            phases=phases,
            result=result,
        )

    usual = tiles(TALL)
    if not usual.is_crowded:
        return usual
    low = tiles(LOW)
    return replace(low, most=min(low.most, low.places))


def best_tile(
    tile: RegisterTile, window: Window, channels: int, features: int, size_in_bytes: int = 4
) -> tuple[int, int]:
    """Return the block of features and the neighbours of a tile of images of any size."""
    vectors, most = vectors_of(tile, features)
    places = _places(window, channels, size_in_bytes)
    if most > places:
        vectors, most = vectors_of(tile, features, LOW)
    return vectors * tile.width, min(most, places, OPEN_PIXELS)


def _places(window: Window, channels: int, size_in_bytes: int = 4) -> int:
    """Return how many pixels of a row find a place in the first cache, where lines share some."""
    distance = window.stride[1] * channels * size_in_bytes
    return WAYS * SAME_SET // gcd(distance, SAME_SET)


def joined_groups(tile: RegisterTile, features: int, groups: int) -> int:
    """Return in how many groups a convolution of several is computed.

    Groups of fewer features than a vector has are taken together as one, with zeros in its filter:
    their terms take as long for each of them as for all.
    """
    each = features // groups
    together = (n for n in range(1, groups + 1) if groups % n == 0 and n * each >= tile.width)
    return groups // next(together, groups)


def vectors_of(tile: RegisterTile, features: int, best: int = TALL) -> tuple[int, int]:
    """Return vectors of features that are summed side by side, and the most rows of such sums.

    They waste least on features that are not there; of several such numbers it is the nearest to
    the ``best``.
    """
    counts = [
        count
        for count in range(1, MOST_VECTORS + 1)
        if count * (count + 1) < tile.registers and (count - 1) * tile.width < features
    ]
    vectors = min(
        counts if len(counts) == 1 else counts[1:],
        key=lambda count: (-(-features // (count * tile.width)) * count, abs(count - best)),
    )
    return vectors, max(1, (tile.registers - 1 - vectors) // vectors)
