"""Volumes as images: the slices that an output slice sees, as channels side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.kernel_options import Window


def stack_depth(tile: RegisterTile, window: Window, channels: int) -> b.PrimFunc:
    """Build the copy; slices in the padding are zeros.

    Parameters of the kernel: x[batch, slices, pixels, channels], y[batch, output slices, pixels,
    places of the window * channels], both float32; the window is along the slices.
    """
    taps = window.size[0]
    with b.kernel(f"stack_{taps}_{channels}") as kernel:
        batch, slices, pixels = (kernel.dim(name) for name in ("batch", "slices", "pixels"))
        outputs = kernel.dim("outputs")
        x = kernel.argument("x", (batch, slices, pixels, channels))
        y = kernel.argument("y", (batch, outputs, pixels, taps * channels))

        def write(to: b.Indices, first: int, value: Callable[[b.Indices, int], b.Expr]) -> None:
            """Write the channels of a slice for all pixels of another one."""
            with T.serial(pixels) as pixel:

                def part(offset: b.Index, width: int) -> None:
                    there = (*to, pixel, first + offset)
                    b.store(y, value((pixel, offset), width), there, width)

                b.each_vector(channels, tile.width, part)

        def stack(i: b.Expr) -> None:
            image = b.index(b.quotient(i, outputs))
            to = image, b.index(i - image * outputs)
            for tap in range(taps):
                distance = tap * window.dilation[0] - window.before[0]
                at = b.index(to[1] * window.stride[0] + distance)

                def given(place: b.Indices, width: int, at: b.Expr = at) -> b.Expr:
                    return b.load(x, (image, at, *place), width)

                b.either(
                    tirx.all(at >= 0, at < slices),
                    partial(write, to, tap * channels, given),
                    partial(write, to, tap * channels, lambda _, width: b.splat(0.0, width)),
                )

        b.each_row(batch * outputs, pixels * (taps * channels), stack)
    return kernel.function
