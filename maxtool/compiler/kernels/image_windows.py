"""The window of an output pixel: which pixels of an image it sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.kernel_options import Window

# The dimensions of images in front of their channels: batch, and spatial ones.
NAMES = ("h", "w", "d")

# What is done for a place of the window, given the place in it, and that in the input.
AtPlace: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], None]


@dataclass(frozen=True, slots=True)
class InputImage:
    """The input while a kernel is built, and the output pixel that is computed.

    Where the window is ``transposed``, strides, dilations and padding are those of the output, and
    an input pixel is seen by the output pixels in its window.
    """

    window: Window
    sizes: Sequence[b.Expr]
    pixel: Sequence[b.Expr]
    transposed: bool = False

    def each(self, body: AtPlace, padding: bool = False) -> None:
        """Run ``body(taps, places)`` for each place of the window that is in the input.

        Places in the padding count too if ``padding`` is True.
        """
        with ExitStack() as loops:
            taps = [loops.enter_context(T.serial(b.integer(size))) for size in self.window.size]
            find = self._spread if self.transposed else self._place
            found = [find(axis, tap, padding) for axis, tap in enumerate(taps)]
            loops.enter_context(b.when(tirx.all(*(inside for _, inside in found))))
            body(taps, [place for place, _ in found])

    def count(self, *, padding: bool = False) -> b.Expr:
        """Return how many places ``each`` runs a body for, of a window that is not transposed."""
        total = b.integer(1)
        for axis, size in enumerate(self.sizes):
            total = total * self._count(axis, size, padding)
        return total

    def _count(self, axis: int, size: b.Expr, padding: bool) -> b.Expr:
        window = self.window
        start = b.index(self.pixel[axis] * window.stride[axis] - window.before[axis])
        dilation, most = window.dilation[axis], b.integer(window.size[axis])

        def taps_to(place: b.Expr) -> b.Expr:
            """The taps before a place."""
            return b.least(b.ceildiv(b.greatest(place - start, 0), dilation), most)

        if padding:
            return taps_to(size + window.after[axis])
        return b.greatest(taps_to(size) - taps_to(b.integer(0)), 0)

    def _place(self, axis: int, tap: b.Expr, padding: bool) -> tuple[b.Expr, b.Expr]:
        """Return the place along a dimension, and whether it is inside."""
        window, size = self.window, self.sizes[axis]
        start = self.pixel[axis] * window.stride[axis] - window.before[axis]
        at = b.index(start + tap * window.dilation[axis])
        if padding:
            return at, at < size + window.after[axis]
        return at, tirx.all(at >= 0, at < size)

    def _spread(self, axis: int, tap: b.Expr, _padding: bool) -> tuple[b.Expr, b.Expr]:
        """Return the place whose window has the pixel at ``tap``, and whether there is one."""
        window = self.window
        reached = self.pixel[axis] + window.before[axis] - tap * window.dilation[axis]
        distance, stride = b.index(reached), window.stride[axis]
        at = b.index(b.quotient(distance, stride))
        whole = tirx.all(distance >= 0, at * stride == distance)
        return at, tirx.all(whole, at < self.sizes[axis])


def image_dims(kernel: b.Kernel, spatial: int, prefix: str = "") -> list[b.Expr]:
    """The spatial sizes of an image as parameters of a kernel."""
    return [kernel.dim(f"{prefix}{name}") for name in NAMES[:spatial]]
