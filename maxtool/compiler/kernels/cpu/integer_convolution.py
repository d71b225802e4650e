"""Convolution of bytes on a packed filter of bytes: the tiles of floats, on integer dots.

Instructions take an image's bytes with a sign or without, and zero points are left in: the sum of a
feature's weights, which lies in front of them, says how much that adds to every sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.byte_dot import (
    GROUP,
    HALF,
    ByteDot,
    best_byte_tile,
    byte_dot,
    byte_tiles,
    groups,
    runs,
)
from maxtool.compiler.kernels.cpu.convolution_tiles import ImageTiles
from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.open_tiles import OpenTiles, open_tiles
from maxtool.compiler.kernels.cpu.pixel_output import as_lines, pixel_output
from maxtool.compiler.kernels.cpu.tiled_convolution import (
    Padding,
    Part,
    TiledConvolution,
    each_tile_of,
)
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Window


@dataclass(frozen=True, slots=True)
class IntegerTiles(TiledConvolution):
    """The buffers of a convolution of bytes while its kernel is built."""

    w: b.Buffer  # [blocks, 1 + groups of terms, block * GROUP]; in front the sums of all terms
    dot: ByteDot
    zero: int  # of the image as the dot takes it
    flipped: bool  # whether the image's bytes have a sign too many or too few

    def sums(self, image: b.Expr, start: list[b.Expr], block: b.Expr, part: Part) -> b.Registers:
        """The sums of a tile."""
        registers = b.Registers(self.pixels, self.tiles.block, self.lanes, "int32")
        self._begin(registers, block)
        window, channels = self.tiles.window, self.tiles.channels
        rows = window.size[0]
        stride, dilation = window.stride, window.dilation
        top = b.index(start[0] * stride[0])
        left = b.index(start[1] * (stride[1] * channels))
        count, terms = runs(window, channels)
        outer, steps = count // rows, groups(terms)
        with T.serial(b.integer(rows)) as r, T.serial(b.integer(outer)) as s:
            source = b.index(top + r * dilation[0])
            first = b.index(left + s * (dilation[1] * channels))
            group = b.index((r * outer + s) * steps + 1)
            with T.serial(b.integer(steps)) as k:
                self.fetch_next(self.w, (block, group + k), part)
                self._add(registers, (block, group + k), (image, source, first + k * GROUP))
        return registers

    def _begin(self, registers: b.Registers, block: b.Expr) -> None:
        """Begin with what zero points take off."""
        if not self.zero:
            registers.clear()
            return
        for offset, lanes in registers.pieces:
            bytes_ = b.load(self.w, (block, 0, offset * GROUP), lanes * GROUP)
            sums = T.reinterpret(b.vector_type("int32", lanes), bytes_)
            value = b.let(sums * b.splat(b.int32(-self.zero), lanes))
            for p in range(self.pixels):
                registers.set(p, offset, lanes, value)

    def _add(self, registers: b.Registers, group: b.Indices, source: b.Indices) -> None:
        """Add the products of a group of terms."""
        high, wide = self.tiles.size
        down, across = self.tiles.window.stride
        number, row, column = source
        weights = [
            self.dot.features(b.load(self.w, (*group, offset * GROUP), lanes * GROUP))
            for offset, lanes in registers.pieces
        ]
        for i in range(high):
            for j in range(wide):
                place = number, row + i * down, column + j * across * self.tiles.channels
                word = b.let(T.reinterpret("int32", b.load(self.x, place, GROUP)))
                values = self.dot.spread(word, flipped=self.flipped)
                for (offset, lanes), weight in zip(registers.pieces, weights, strict=True):
                    sums = registers.get(i * wide + j, offset, lanes)
                    total = self.dot.add(sums, values, weight)
                    registers.set(i * wide + j, offset, lanes, total)


def integer_convolution(
    target: CpuTarget,
    window: Window,
    image: tuple[int, int] | None,
    channels: int,
    features: int,
    dtype: str,
    zero: int,
    after: ChainEpilogue,
) -> b.PrimFunc:
    """Build the convolution of images of int8 or uint8 with a filter of int8.

    Images are of any sizes if no ``image`` is given.

    Parameters of the kernel: x[batch, rows, columns, channels], w[blocks, 1 + groups, block, 4]
    (see ``IntegerFilterForm``), and what ``pixel_output`` declares, of which the bias is int32.
    """
    dot = byte_dot(instruction_set(target))
    flips = dtype != dot.dtype
    zero += HALF * flips * (-1 if dot.signed else 1)
    count, terms = runs(window, channels)
    with b.kernel("_".join(("convolution", dtype, *(step.op for step in after.steps)))) as kernel:
        tiles: ImageTiles | OpenTiles
        if image is None:
            best = best_byte_tile(target, window, channels, features)
            tiles = open_tiles(kernel, window, channels, best, size_in_bytes=1)
        else:
            tiles = byte_tiles(target, window, image, channels, features)
        batch = kernel.dim("batch")
        x = kernel.argument("x", (batch, *tiles.image, channels), dtype)
        blocks = -(-features // tiles.block)
        shape = (blocks, 1 + count * groups(terms), tiles.block * GROUP)
        w = kernel.argument("w", (*shape[:-1], tiles.block, GROUP), "int8")
        output = pixel_output(kernel, batch, tiles.whole, tiles.lines, features, after, "int32")
        given = tiles.padded if tiles.is_product else tiles.image
        source = as_lines(x, (batch, given[0], given[1] * channels))
        # Groups that are filled up read beyond their terms, the last of them beyond the image. LLVM
        # 22 does not end where bytes are flipped as they are spread, for CPUs from Ice Lake on.
        copied = window.is_padded or terms % GROUP > 0 or (flips and not dot.signed)
        own = IntegerTiles(
            tiles=tiles,
            lanes=dot.lanes,
            features=features,
            output=output,
            x=source,
            w=as_lines(w, shape),
            dot=dot,
            zero=zero,
            flipped=flips and not copied,
        )
        padding = Padding(
            given,
            tirx.const(zero, dot.dtype),
            dot.lanes * GROUP,
            beyond=GROUP,
            change=partial(_flipped, dot.dtype) if flips else None,
            always=copied,
        )
        each_tile_of(own, batch, count * groups(terms), padding)
    return kernel.function


def _flipped(dtype: str, value: b.Expr, width: int) -> b.Expr:
    """Bytes with the sign that they have not."""
    bits = T.reinterpret(b.vector_type("uint8", width), value)
    return T.reinterpret(
        b.vector_type(dtype, width), bits ^ b.splat(tirx.const(HALF, "uint8"), width)
    )
