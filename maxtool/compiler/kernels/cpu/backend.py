"""The backend of CPUs for kernels of rows and elements."""

# ruff: noqa: ARG002 - what one kind of target does not need, another does

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.backend import Emit, Pixel, PixelBody, RowBody, VectorBody
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.cpu import scatter
from maxtool.compiler.kernels.cpu.rows import SingleThread
from maxtool.compiler.kernels.cpu.special_functions import Vectors

# Vectors of an image's channels that are computed together.
VECTORS = 4
# Tasks, at least, that a pixel is shared by, where it has as many vectors of channels.
PARTS = 4


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Loops on all threads of a CPU, and vectors in its registers."""

    tile: RegisterTile

    exp = staticmethod(e.exp)
    read = staticmethod(e.read)
    rounded = staticmethod(e.rounded)
    write = staticmethod(e.write)
    load_vector = staticmethod(e.load_vector)
    scatter_elements = staticmethod(scatter.scatter_elements)
    scatter_rows = staticmethod(scatter.scatter_rows)
    store_vector = staticmethod(e.store_vector)

    def each_row(
        self,
        rows: b.Expr,
        n: b.Index,
        body: RowBody,
        *,
        dtypes: Sequence[str] = ("float32",),
        work: int = 1,
        group: int | None = None,
    ) -> None:
        """Run ``body(row, threads)`` for every row, a thread for each."""
        width = min((e.width_of(dtype, self.tile.width) for dtype in dtypes), default=1)
        b.each_row(rows, n * work, lambda i: body(i, SingleThread(width)))

    def each_element(self, sizes: b.Indices, row: Callable[..., Emit], work: int = 1) -> None:
        """Run ``row(*outer)(k)`` for every element, row by row."""
        *outer, n = [b.integer(size) for size in sizes]
        if not outer:
            b.each_row(n, work, row())
            return
        rows = prod(outer[1:], start=outer[0])
        b.each_row(rows, n * work, lambda i: SingleThread().each(n, row(*b.unravel(i, outer))))

    def each_vector(self, rows: b.Expr, dim: b.Index, body: VectorBody, work: b.Index = 1) -> None:
        """Run ``body(row, k, width)`` for the vectors of every row."""

        def row(i: b.Expr) -> None:
            SingleThread(self.tile.width).each_vector(dim, lambda k, width: body(i, k, width))

        b.each_row(rows, work * dim, row)

    def each_pixel(
        self, sizes: Pixel, channels: tuple[int, int], body: PixelBody, *, dtype: str, work: int
    ) -> None:
        """Run ``body(pixel, group, first, pieces)`` for some vectors at a time, and the rest.

        A pixel that is worth several threads, such as the mean of a whole image, is shared by its
        channels.
        """
        groups, count = channels
        width = e.width_of(dtype, self.tile.width)
        if work >= b.SERIAL_WORK // PARTS:
            step = width * next((n for n in (4, 2) if count >= PARTS * n * width), 1)
            self._each_part(sizes, channels, (step, width), body, work=work)
            return
        whole, rest = divmod(count, VECTORS * width)

        def pixel(i: b.Expr) -> None:
            place = b.unravel(i, sizes)
            with T.serial(b.integer(groups)) as group:

                def block(offset: b.Index, size: int) -> None:
                    body(place, group, b.index(group * count + offset), b.widths(size, width))

                if whole:
                    with T.serial(b.integer(whole)) as j:
                        block(j * (VECTORS * width), VECTORS * width)
                if rest:
                    block(count - rest, rest)

        b.each_row(prod(sizes, start=b.integer(1)), work, pixel)

    def _each_part(
        self,
        sizes: Pixel,
        channels: tuple[int, int],
        block_of: tuple[int, int],
        body: PixelBody,
        *,
        work: int,
    ) -> None:
        """Run the body for a block of channels of a group of a pixel, each by itself.

        ``block_of`` says how many they are, and how many of them a vector has.
        """
        groups, count = channels
        step, width = block_of
        whole, rest = divmod(count, step)
        parts = whole + (rest > 0)

        def part(i: b.Expr) -> None:
            *place, group, number = b.unravel(i, [*sizes, b.integer(groups), b.integer(parts)])
            first = b.index(group * count + number * step)

            def block(size: int) -> None:
                body(place, group, first, b.widths(size, width))

            if not (whole and rest):
                block(step if whole else rest)
                return
            b.either(number < whole, lambda: block(step), lambda: block(rest))

        rows = prod(sizes, start=b.integer(groups * parts))
        b.each_row(rows, -(-work // (groups * parts)), part)

    def compute(
        self, function: Callable[..., b.Expr], vectors: Sequence[b.Expr], width: int
    ) -> b.Expr:
        """Return ``function(m, *vectors)``."""
        return function(Vectors(width), *vectors)
