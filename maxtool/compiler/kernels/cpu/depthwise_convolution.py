"""Convolution of each channel for itself: vectors of channels, some neighbouring pixels at a time.

Places of the window outside the image are left out: of a row by a condition, of a column by code of
its own for the pixels that such columns belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.pixel_output import PixelOutput, as_lines, pixel_output
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Window

# Neighbouring pixels of a row that are summed at once, at most.
PIXELS = 8


@dataclass(frozen=True, slots=True)
class DepthwiseRow:
    """The buffers and sizes of a convolution while its kernel is built, and the row computed."""

    window: Window
    image: tuple[int, int]
    channels: int
    x: b.Buffer  # [batch, rows, columns * channels]
    w: b.Buffer  # [window rows, window columns, 1, channels]
    output: PixelOutput
    at: tuple[b.Expr, b.Expr]  # image and output row
    zero: int = 0  # what stands for 0 in an image of bytes

    @property
    def inner(self) -> tuple[int, int]:
        """The output columns whose windows lie in the image."""
        window, width, count = self.window, self.image[1], output_sizes(self.window, self.image)[1]
        reach = window.dilation[1] * (window.size[1] - 1)
        first = -(-window.before[1] // window.stride[1])
        last = (width - 1 - reach + window.before[1]) // window.stride[1]
        start = min(first, count)
        return start, max(start, min(last + 1, count))

    def compute(self, lanes: int) -> None:
        """Compute all pixels of the row, and of neighbours all channels: those lie side by side."""
        count = output_sizes(self.window, self.image)[1]
        start, end = self.inner

        def pixels(column: b.Index, number: int, taps: list[int]) -> None:
            b.each_vector(
                self.channels, lanes, lambda c, n: self._pixels(column, number, c, n, taps)
            )

        everything = list(range(self.window.size[1]))
        tiles, rest = divmod(end - start, PIXELS)
        for column in range(start):
            pixels(column, 1, self._columns(column))
        if tiles:
            with T.serial(b.integer(tiles)) as i:
                pixels(b.index(start + i * PIXELS), PIXELS, everything)
        if rest:
            pixels(end - rest, rest, everything)
        for column in range(end, count):
            pixels(column, 1, self._columns(column))

    def _columns(self, column: int) -> list[int]:
        """The columns of the window of an output column that are in the image."""
        window = self.window
        left = column * window.stride[1] - window.before[1]
        taps = range(window.size[1])
        return [s for s in taps if 0 <= left + s * window.dilation[1] < self.image[1]]

    def _pixels(
        self, column: b.Index, count: int, channel: b.Index, lanes: int, taps: list[int]
    ) -> None:
        """Compute neighbouring pixels, from some columns of the window."""
        window, channels = self.window, self.channels
        image, row = self.at
        registers = b.Registers(count, lanes, lanes, str(self.output.bias.dtype))
        registers.clear()
        top = b.index(row * window.stride[0] - window.before[0])
        left = b.index(b.integer(column) * window.stride[1] - window.before[1])
        for r in range(window.size[0]):
            y = b.index(top + r * window.dilation[0])
            with b.when(tirx.all(y >= 0, y < self.image[0])):
                for s in taps:
                    weight = b.let(self._computed(b.load(self.w, (r, s, 0, channel), lanes), 0))
                    for p in range(count):
                        x = left + (p * window.stride[1] + s * window.dilation[1])
                        loaded = b.load(self.x, (image, y, x * channels + channel), lanes)
                        value = self._computed(loaded, self.zero)
                        registers.add(p, 0, lanes, value * weight)

        def place(p: b.Index) -> tuple[b.Indices, b.Expr]:
            return (image, row, (column + p) * channels + channel), b.integer(channel)

        self.output.store_tile(registers, registers.pieces, place)

    def _computed(self, value: b.Expr, zero: int) -> b.Expr:
        """Bytes less their zero point in int32; float32 as it is."""
        dtype, _, lanes = str(value.ty).partition("x")
        if dtype == "float32":
            return value
        width = int(lanes or 1)
        wide = T.Cast(b.vector_type("int32", width), value)
        return wide - b.splat(b.int32(zero), width) if zero else wide


def _row(_: b.Buffer, own: DepthwiseRow, lanes: int) -> None:
    own.compute(lanes)


def output_sizes(window: Window, image: tuple[int, int]) -> tuple[int, int]:
    """Return rows and columns of the result."""
    rows, columns = (
        (size + before + after - reach * (taps - 1) - 1) // step + 1
        for size, before, after, reach, taps, step in zip(
            image,
            window.before,
            window.after,
            window.dilation,
            window.size,
            window.stride,
            strict=True,
        )
    )
    return rows, columns


def depthwise_convolution(
    tile: RegisterTile,
    window: Window,
    image: tuple[int, int],
    channels: int,
    after: ChainEpilogue,
    dtype: str = "float32",
    zero: int = 0,
) -> b.PrimFunc:
    """Build the convolution of each channel for itself, of images of known sizes.

    Parameters of the kernel: x[batch, rows, columns, channels] of ``dtype``, float32 or bytes,
    w[window rows, window columns, 1, channels], float32 or int8, and what ``pixel_output``
    declares.
    """
    filters, sums = ("float32", "float32") if dtype == "float32" else ("int8", "int32")
    sizes = output_sizes(window, image)
    with b.kernel("_".join(("depthwise", *(step.op for step in after.steps)))) as kernel:
        batch = kernel.dim("batch")
        x = kernel.argument("x", (batch, *image, channels), dtype)
        w = kernel.argument("w", (*window.size, 1, channels), filters)
        output = pixel_output(kernel, batch, sizes, sizes, channels, after, sums)
        lines = as_lines(x, (batch, image[0], image[1] * channels))

        def row(i: b.Expr) -> None:
            number = b.index(b.quotient(i, sizes[0]))
            at = number, b.index(i - number * sizes[0])
            own = DepthwiseRow(window, image, channels, lines, w, output, at, zero)
            subroutines.call(_row, [output.y], own, tile.width)

        work = sizes[1] * channels * window.size[0] * window.size[1]
        b.each_image(batch, sizes[0], work, row)
    return kernel.function
