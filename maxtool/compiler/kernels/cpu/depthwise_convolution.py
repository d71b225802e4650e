"""Convolution of each channel for itself: vectors of channels, some neighbouring pixels at a time.

Places of the window outside the image are left out: of a row by a condition, of a column by code of
its own for the pixels that such columns belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
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
    image: tuple[b.Index, b.Index]
    count: b.Index  # pixels of a row of the result
    channels: int
    x: b.Buffer  # [batch, rows, columns * channels]
    w: b.Buffer  # [window rows, window columns, 1, channels]
    output: PixelOutput
    at: tuple[b.Expr, b.Expr]  # image and output row
    zero: int = 0  # what stands for 0 in an image of bytes

    @property
    def everything(self) -> range:
        """The columns of the window."""
        return range(self.window.size[1])

    def compute(self, lanes: int) -> None:
        """Compute all pixels of the row, and of neighbours all channels: those lie side by side."""
        width = self.image[1]
        if isinstance(width, int) and isinstance(self.count, int):
            self._compute_known(width, self.count, lanes)
        else:
            self._compute_any(lanes)

    def _compute_known(self, width: int, count: int, lanes: int) -> None:
        """Compute a row whose sizes are known: each column at its ends has code of its own."""
        window = self.window
        reach = window.dilation[1] * (window.size[1] - 1)
        start = min(-(-window.before[1] // window.stride[1]), count)
        last = (width - 1 - reach + window.before[1]) // window.stride[1]
        end = max(start, min(last + 1, count))
        tiles, rest = divmod(end - start, PIXELS)
        for column in range(start):
            self._each_channel(column, 1, self._columns(column, width), lanes)
        if tiles:
            with T.serial(b.integer(tiles)) as i:
                self._each_channel(b.index(start + i * PIXELS), PIXELS, self.everything, lanes)
        if rest:
            self._each_channel(end - rest, rest, self.everything, lanes)
        for column in range(end, count):
            self._each_channel(column, 1, self._columns(column, width), lanes)

    def _compute_any(self, lanes: int) -> None:
        """Compute a row of any sizes: conditions say which places its ends see.

        The last pixels of those that see whole windows are computed with some before them.
        """
        window, width, count = self.window, self.image[1], b.integer(self.count)
        reach = window.dilation[1] * (window.size[1] - 1) - window.before[1]
        start = b.index(b.least(-(-window.before[1] // window.stride[1]), count))
        inside = b.ceildiv(b.greatest(b.integer(width) - reach, 0), window.stride[1])
        end = b.index(b.greatest(b.least(inside, count), start))
        tiles = b.index(b.ceildiv(end - start, PIXELS))
        several = b.index(T.Cast("int64", end - start >= PIXELS))

        def ends(first: b.Index, last: b.Expr) -> None:
            with T.serial(first, last) as column:
                self._each_channel(b.index(column), 1, self.everything, lanes, is_end=True)

        ends(b.integer(0), start)
        with T.serial(tiles * several) as i:
            column = b.index(b.least(start + i * PIXELS, end - PIXELS))
            self._each_channel(column, PIXELS, self.everything, lanes)
        ends(b.index(start + (end - start) * several), count)

    def _each_channel(
        self,
        column: b.Index,
        number: int,
        taps: Sequence[int],
        lanes: int,
        *,
        is_end: bool = False,
    ) -> None:
        """Compute neighbouring pixels of all channels, from some columns of the window."""

        def part(channel: b.Index, width: int) -> None:
            self._pixels(column, number, (channel, width), taps, is_end=is_end)

        b.each_vector(self.channels, lanes, part)

    def _columns(self, column: int, width: int) -> list[int]:
        """The columns of the window of an output column that are in the image."""
        window = self.window
        left = column * window.stride[1] - window.before[1]
        taps = range(window.size[1])
        return [s for s in taps if 0 <= left + s * window.dilation[1] < width]

    def _pixels(
        self,
        column: b.Index,
        count: int,
        vector: tuple[b.Index, int],
        taps: Sequence[int],
        *,
        is_end: bool,
    ) -> None:
        """Compute neighbouring pixels of some channels; one at an end may see less."""
        window, channels, (channel, lanes) = self.window, self.channels, vector
        image, row = self.at
        registers = b.Registers(count, lanes, lanes, str(self.output.bias.dtype))
        registers.clear()
        top = b.index(row * window.stride[0] - window.before[0])
        left = b.index(b.integer(column) * window.stride[1] - window.before[1])
        for r in range(window.size[0]):
            y = b.index(top + r * window.dilation[0])
            with b.when(tirx.all(y >= 0, y < self.image[0])):
                for s in taps:
                    first = left + s * window.dilation[1]
                    seen = tirx.all(first >= 0, first < self.image[1])
                    with b.when(seen) if is_end else nullcontext():
                        weights = b.load(self.w, (r, s, 0, channel), lanes)
                        weight = b.let(self._computed(weights, 0))
                        for p in range(count):
                            x = first + p * window.stride[1]
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
    image: tuple[int, int] | None,
    channels: int,
    after: ChainEpilogue,
    dtype: str = "float32",
    zero: int = 0,
) -> b.PrimFunc:
    """Build the convolution of each channel for itself, of any sizes if no ``image`` is given.

    Parameters of the kernel: x[batch, rows, columns, channels] of ``dtype``, float32 or bytes,
    w[window rows, window columns, 1, channels], float32 or int8, and what ``pixel_output``
    declares.
    """
    filters, sums = ("float32", "float32") if dtype == "float32" else ("int8", "int32")
    with b.kernel("_".join(("depthwise", *(step.op for step in after.steps)))) as kernel:
        batch = kernel.dim("batch")
        given: tuple[b.Index, b.Index] = image or (kernel.dim("rows"), kernel.dim("columns"))
        sizes: tuple[b.Index, b.Index] = kernel.dim("result_rows"), kernel.dim("result_columns")
        if image is not None:
            sizes = output_sizes(window, image)
        x = kernel.argument("x", (batch, *given, channels), dtype)
        w = kernel.argument("w", (*window.size, 1, channels), filters)
        output = pixel_output(kernel, batch, sizes, sizes, channels, after, sums)
        lines = as_lines(x, (batch, given[0], given[1] * channels))

        def row(i: b.Expr) -> None:
            number = b.index(b.quotient(i, sizes[0]))
            at = number, b.index(i - number * sizes[0])
            own = DepthwiseRow(window, given, sizes[1], channels, lines, w, output, at, zero)
            subroutines.call(_row, [output.y], own, tile.width)

        work = sizes[1] * (channels * window.size[0] * window.size[1])
        b.each_image(batch, sizes[0], work, row)
    return kernel.function
