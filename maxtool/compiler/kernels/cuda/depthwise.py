"""Convolution of each channel by itself: a thread has neighbouring pixels of neighbouring channels.

It is bound by memory. What pixels of one thread share of a row of the image is read once, and so
are the filters' values for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.implicit_gemm import as_rows
from maxtool.compiler.kernels.cuda.product_output import Output, Part, declared
from maxtool.compiler.kernels.image_windows import InputImage, image_dims
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Window

THREADS = 128
# Neighbours in a row of the result that a thread computes.
PIXELS = 4
# The widest window: a thread has the filter's values of a row of it in registers.
WIDEST = 16


@dataclass(frozen=True, slots=True)
class _Channels:
    """The buffers of a kernel while it is built."""

    x: b.Buffer  # ``[batch, sizes..., channels]``
    f: b.Buffer  # ``[window..., channels]``
    output: Output  # of all pixels
    window: Window
    sizes: Sequence[b.Expr]  # of an image
    outputs: Sequence[b.Expr]  # of its result
    dtype: str

    def sums(self, pixel: Sequence[b.Expr], channel: b.Expr) -> b.Buffer:
        """The sums ``[PIXELS * channels]`` from a pixel and a channel on."""
        image, *outer, left = pixel
        outside, last = self.window.along(slice(-1)), self.window.along(slice(-1, None))
        width, sums = self.output.width, ln.zeros(PIXELS * self.output.width)
        start = b.index(left * last.stride[0] - last.before[0])

        def add(taps: Sequence[b.Expr], places: Sequence[b.Expr]) -> None:
            factors = [
                ln.read(self.f, (*taps, b.integer(tap), channel), width, self.dtype)
                for tap in range(last.size[0])
            ]
            for offset, pairs in _shared(last).items():
                at = b.index(start + offset)
                with b.when(tirx.all(at >= 0, at < self.sizes[-1])):
                    place = (image, *places, at, channel)
                    values = ln.read(self.x, place, width, self.dtype)
                    for number, tap in pairs:
                        for lane in range(width):
                            index = number * width + lane
                            product = values[lane] * factors[tap][lane]
                            b.store(sums, sums[index] + product, (index,))

        InputImage(outside, self.sizes[:-1], outer).each(add)
        return sums

    def write(self, pixel: Sequence[b.Expr], channel: b.Expr, sums: b.Buffer) -> None:
        """Write the sums where they exist."""
        first = pixel[0]
        for size, place in zip(self.outputs, pixel[1:], strict=True):
            first = first * size + place
        row, left, width = b.index(first), pixel[-1], self.output.width
        part = Part(self.output, lambda at: (left + at < self.outputs[-1], row + at), b.integer(0))
        part.columns(channel).write(
            PIXELS,
            lambda number: T.Cast("int64", number),
            lambda number: [sums[number * width + lane] for lane in range(width)],
        )


def depthwise(window: Window, dtype: str, *, fours: bool, after: ChainEpilogue) -> b.PrimFunc:
    """Build the convolution, and what is done to its result.

    Parameters of the kernel: x[batch, sizes..., channels] and f[window..., channels] of one type;
    what ``after`` reads, each [channels] or [output pixels, channels]; y[batch, output sizes...,
    channels]. Sizes are less than 2**31.
    """
    spatial = len(window.size)
    with b.kernel("_".join(("depthwise", *(step.op for step in after.steps)))) as kernel:
        batch, sizes = kernel.dim("batch"), image_dims(kernel, spatial)
        outputs, channels = image_dims(kernel, spatial, "o"), kernel.dim("channels")
        x = kernel.argument("x", (batch, *sizes, channels), b.STORAGE[dtype])
        f = kernel.argument("f", (*window.size, channels), b.STORAGE[dtype])
        operands = declared(kernel, (kernel.dim("pixels"), channels), after)
        y = kernel.argument("y", (batch, *outputs, channels), b.STORAGE[after.out])
        rows = prod(outputs, start=batch)
        output = Output(
            as_rows(y, rows), rows, channels, operands, after.steps, dtype=after.out, fours=fours
        )
        _launch(_Channels(x, f, output, window, sizes, outputs, dtype), batch)
    return kernel.function


def _launch(kernel: _Channels, batch: b.Expr) -> None:
    """Blocks for each row of the result, whose threads are next to each other along channels."""
    *outer, across = kernel.outputs
    vectors = b.quotient(kernel.output.columns, kernel.output.width)
    work = b.ceildiv(across, PIXELS) * vectors
    parts = b.ceildiv(work, THREADS)
    with b.launch([prod(outer, start=batch) * parts], THREADS) as (block, thread):
        row = b.index(b.block_quotient(block, parts))
        at = b.index((block - row * parts) * THREADS + T.Cast("int64", thread))
        with b.when(at < work):
            place: list[b.Expr] = []
            for size in reversed(outer):
                rest = b.index(b.block_quotient(row, size))
                place.insert(0, b.index(row - rest * size))
                row = rest
            number = b.index(b.block_quotient(at, vectors))
            channel = b.index((at - number * vectors) * kernel.output.width)
            pixel = (row, *place, b.index(number * PIXELS))
            kernel.write(pixel, channel, kernel.sums(pixel, channel))


def _shared(window: Window) -> dict[int, list[tuple[int, int]]]:
    """Return the pixels and places of a window's row that meet, by their distance."""
    (size,), (stride,), (dilation,) = window.size, window.stride, window.dilation
    shared: dict[int, list[tuple[int, int]]] = {}
    for number in range(PIXELS):
        for tap in range(size):
            shared.setdefault(number * stride + tap * dilation, []).append((number, tap))
    return dict(sorted(shared.items()))
