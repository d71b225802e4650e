"""The tiles of a convolution of images whose sizes are known at run time only."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.convolution_tiles import CHUNK, LEAST_TASKS, Tiles
from maxtool.compiler.kernels.kernel_options import Phases, Window


@dataclass(frozen=True, kw_only=True)
class OpenTiles(Tiles):
    """Tiles of neighbours in a row of the output; where it has fewer, some are of no result.

    Attributes:
        image: Rows and columns of the input.
        whole: Rows and columns of the result as others see it.
        size_in_bytes: Bytes of an element of the image.
    """

    image: tuple[b.Expr, b.Expr]
    whole: tuple[b.Expr, b.Expr]
    size_in_bytes: int = 4

    @property
    def padded(self) -> tuple[b.Expr, b.Expr]:
        """Rows and columns of the input with its padding; one row if pixels are rows."""
        if self.is_product:
            return b.integer(1), self.image[0] * self.image[1]
        around = zip(self.image, self.window.before, self.window.after, strict=True)
        rows, columns = (size + (before + after) for size, before, after in around)
        return rows, columns

    @property
    def output(self) -> tuple[b.Expr, b.Expr]:
        """Rows and columns of the result, of each phase if there are several."""
        if self.is_product:
            return b.integer(1), self.whole[0] * self.whole[1]
        if self.phases is None:
            return self.whole
        axes = zip(self.whole, self.phases.before, self.phases.stride, strict=True)
        rows, columns = (b.ceildiv(size + before, step) for size, before, step in axes)
        return rows, columns

    @property
    def lines(self) -> tuple[b.Expr, b.Expr]:
        """Rows and columns of the result as the kernel writes them."""
        return self.output if self.phases is None else self.whole

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return 1, self.most

    @property
    def is_narrow(self) -> b.Expr:
        """Return whether a row has fewer pixels than a tile."""
        return self.output[1] < self.most

    @property
    def room(self) -> int:
        """Elements that the pixels of a tile read, from the first of a row on."""
        window = self.window
        reach = (self.most - 1) * window.stride[1] + (window.size[1] - 1) * window.dilation[1]
        return (reach + 1) * self.channels

    @property
    def counts(self) -> tuple[b.Expr, b.Expr]:
        """Rows and columns of tiles."""
        return self.output[0], b.ceildiv(self.output[1], self.most)

    def chunks(self, blocks: int) -> b.Expr:
        """Return how many parts an image has, each of some tiles, for so many feature blocks."""
        down, across = self.counts
        rows, columns = self.padded
        by_cache = b.ceildiv(rows * columns * (self.size_in_bytes * self.channels), CHUNK)
        wanted = b.greatest(by_cache, -(-LEAST_TASKS // blocks))
        return b.greatest(b.least(down * across, wanted), 1)


def open_tiles(
    kernel: b.Kernel,
    window: Window,
    channels: int,
    best: tuple[int, int],
    groups: int = 1,
    phases: Phases | None = None,
    size_in_bytes: int = 4,
) -> OpenTiles:
    """Return tiles of a block of features and some neighbours, of sizes that a kernel is given."""
    block, most = best
    return OpenTiles(
        image=(kernel.dim("rows"), kernel.dim("columns")),
        whole=(kernel.dim("result_rows"), kernel.dim("result_columns")),
        window=window,
        channels=channels,
        block=block,
        most=most,
        groups=groups,
        phases=phases,
        size_in_bytes=size_in_bytes,
    )
