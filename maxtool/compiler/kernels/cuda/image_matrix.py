"""Images as the matrices that convolutions multiply: a row for each output pixel (implicit GEMM).

The terms of a row are the places of its window, with all channels of each. Nothing of that matrix
is in memory: what is copied of it is found in the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.matrix import Pieces, Source
from maxtool.compiler.kernels.kernel_options import Window

# Of the number that stands for a row: bits of the pixel at the first place of its window, which may
# lie before the image, and those that say which places are inside.
PIXEL_BITS = 40
PLACE_BITS = 63 - PIXEL_BITS
_ORIGIN = 1 << (PIXEL_BITS - 1)


def is_matrix(window: Window) -> bool:
    """Return whether a number can say which places of a window are inside."""
    return sum(size for _, size in _padded(window)) <= PLACE_BITS


@dataclass(frozen=True, slots=True)
class ImageMatrix(Pieces):
    """The matrix ``[output pixels, places of the window * channels]`` of some images."""

    buffer: b.Buffer  # ``[pixels, channels of all groups]``
    rows: b.Expr
    terms: b.Expr
    dtype: str
    aligned: bool
    window: Window
    sizes: Sequence[b.Expr]  # of an image, along each of its dimensions
    outputs: Sequence[b.Expr]  # of its result
    before: b.Expr | None = None  # channels of the groups before its own
    may_be_empty: ClassVar[bool] = True

    @property
    def channels(self) -> b.Expr:
        """Channels of a group."""
        return b.quotient(self.terms, prod(self.window.size))

    def of(self, index: b.Expr) -> ImageMatrix:
        """The matrix of one group; all phases of a result have one."""
        if self.before is None:
            return self
        return replace(self, before=b.index(index * self.channels))

    def source(self, first: b.Expr) -> Source:
        """Return what gives the beginning of a row's window, and which places are inside."""
        pixel = pixels_from(first, self.rows, self.outputs)
        return lambda at: self._held(*pixel(at))

    def _held(self, image: b.Expr, places: Sequence[b.Expr]) -> b.Expr:
        """The number that stands for an output pixel of an image."""
        window = self.window
        starts = [
            b.index(place * stride - before)
            for place, stride, before in zip(places, window.stride, window.before, strict=True)
        ]
        pixel = image
        for size, start in zip(self.sizes, starts, strict=True):
            pixel = pixel * size + start
        held, shift = pixel + _ORIGIN, PIXEL_BITS
        for axis, taps in _padded(window):
            low, high = (
                self._taps_to(end, starts[axis], axis) for end in (b.integer(0), self.sizes[axis])
            )
            one = b.integer(1)
            inside = T.shift_left(one, high) - T.shift_left(one, low)
            held, shift = held + T.shift_left(inside, b.integer(shift)), shift + taps
        return b.index(held)

    def _taps_to(self, place: b.Expr, start: b.Expr, axis: int) -> b.Expr:
        """The places of the window before a place of the image."""
        distance = b.greatest(place - start, 0)
        return b.index(
            b.least(b.ceildiv(distance, self.window.dilation[axis]), self.window.size[axis])
        )

    def found(self, row: b.Expr, k: b.Expr, width: int) -> tuple[b.Expr, tuple[b.Expr, ...]]:
        """Return whether such terms are in the image, and where; else the first there are."""
        term = b.index(b.least(k, self.terms - width))
        channels = b.index(self.channels)
        tap = b.index(b.block_quotient(term, channels))
        channel = term - tap * channels
        taps = b.unravel(tap, [b.integer(size) for size in self.window.size])
        exists, shift = [k < self.terms], b.integer(PIXEL_BITS)
        for axis, size in _padded(self.window):
            bit = T.bitwise_and(T.shift_right(row, shift + taps[axis]), b.integer(1))
            exists.append(bit == b.integer(1))
            shift = shift + size
        distance = b.integer(0)
        for size, tap_at, step in zip(self.sizes, taps, self.window.dilation, strict=True):
            distance = distance * size + tap_at * step
        low = T.bitwise_and(row, b.integer((1 << PIXEL_BITS) - 1))
        inside = b.let(tirx.all(*exists))
        pixel = b.index(T.Select(inside, low - _ORIGIN + b.index(distance), b.integer(0)))
        return inside, (pixel, channel if self.before is None else self.before + channel)


def pixels_from(
    first: b.Expr, count: b.Expr, sizes: Sequence[b.Expr]
) -> Callable[[b.Expr], tuple[b.Expr, list[b.Expr]]]:
    """Return what gives the image and the place of a pixel, so many after the ``first``.

    Pixels of images of those sizes are counted; beyond the last of ``count`` it is that one. The
    first is found by divisions of 64 bits, and those behind it by some of 32.
    """
    beginning = b.unravel(first, [b.integer(1), *sizes])

    def pixel(at: b.Expr) -> tuple[b.Expr, list[b.Expr]]:
        carry = b.index(b.least(at, count - 1 - first))
        places: list[b.Expr] = []
        for size, start in zip(reversed(sizes), reversed(beginning), strict=False):
            along = b.index(start + carry)
            carry = b.index(b.block_quotient(along, size))
            places.insert(0, b.index(along - carry * size))
        return b.index(beginning[0] + carry), places

    return pixel


def _padded(window: Window) -> Iterator[tuple[int, int]]:
    """Yield each dimension along which a window may lie outside, and its places there."""
    around = zip(window.size, window.before, window.after, strict=True)
    for axis, (size, before, after) in enumerate(around):
        if before or after:
            yield axis, size
