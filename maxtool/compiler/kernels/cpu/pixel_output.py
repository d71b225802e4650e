"""The result of a convolution: its bias, what is done to it then, and where it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.elements import as_float, whole
from maxtool.compiler.kernels.cpu.special_functions import Vectors
from maxtool.compiler.kernels.formulas import ARITHMETIC
from maxtool.compiler.kernels.kernel_options import ChainEpilogue
from maxtool.compiler.kernels.pointwise import run_chain

# Steps of which there is a copy for each register of a tile; others are a loop over its pixels.
PLAIN = {*ARITHMETIC, "relu"}
MOST_PLAIN = 4

# Elements of a cache line.
LINE = 16

# Where a pixel of a tile begins in the result, and at which channel.
Place: TypeAlias = Callable[[b.Index], tuple[b.Indices, b.Expr]]


@dataclass(frozen=True, slots=True)
class PixelOutput:
    """The result, ``[batch, rows, columns * features]``, and the operands of what is done to it."""

    y: b.Buffer
    bias: b.Buffer
    others: tuple[b.Buffer, ...]
    after: ChainEpilogue

    @property
    def is_plain(self) -> bool:
        """Return whether what is done to it is so little that it may stand many times."""
        steps = self.after.steps
        return len(steps) <= MOST_PLAIN and all(step.op in PLAIN for step in steps)

    def fetch(self, pixels: int, channels: int, place: Place) -> None:
        """Fetch what is read for a tile, of the size of the result, while its sums are computed."""
        read = zip(self.others, self.after.columns, strict=True)
        tensors = [other for other, is_row in read if not is_row]
        if not tensors:
            return
        with T.serial(b.integer(pixels)) as p:
            (*outer, first), _ = place(b.index(p))
            for other in tensors:
                for offset in range(0, channels, LINE):
                    b.prefetch(other, (*outer, first + offset))

    def store(self, value: b.Expr, place: b.Indices, channel: b.Index, width: int) -> None:
        """Write neighbours at a place, which begin with a channel."""
        loaded = [
            as_float(b.load(other, (channel,) if is_row else place, width), dtype, width)
            for other, (is_row, dtype) in zip(self.others, self.after.inputs, strict=True)
        ]
        total = b.let(value + b.load(self.bias, (channel,), width))
        if self.after.out != "int32":
            total = b.let(as_float(total, str(self.bias.dtype), width))
        result = run_chain(Vectors(width), self.after.steps, [total, *loaded])
        b.store(self.y, whole(result, self.after.out, width), place, width)

    def store_tile(
        self,
        registers: b.Registers,
        pieces: Sequence[tuple[int, int]],
        place: Place,
        exists: Callable[[b.Index], b.Expr] | None = None,
    ) -> None:
        """Write the registers of a tile; ``place`` of a pixel is where it begins, and a channel.

        ``exists`` says which pixels are written, if it is not all of them.
        """

        def pixel(p: b.Index, sums: b.Buffer) -> None:
            (*outer, first), channel = place(p)
            with nullcontext() if exists is None else b.when(exists(p)):
                for offset, width in pieces:
                    value = b.load(sums, (p, offset), width)
                    self.store(value, (*outer, first + offset), channel + offset, width)

        if self.is_plain:
            for p in range(registers.rows):
                pixel(p, registers.buffer)
            return
        memory = b.scratch(tuple(registers.buffer.shape))
        registers.copy_to(memory)
        with T.serial(b.integer(registers.rows)) as p:
            pixel(b.index(p), memory)


def pixel_output(
    kernel: b.Kernel,
    batch: b.Expr,
    sizes: tuple[b.Index, b.Index],
    lines: tuple[b.Index, b.Index],
    features: int,
    after: ChainEpilogue,
    sums: str = "float32",
) -> PixelOutput:
    """Declare the bias, the other operands and the result of images of some ``sizes``.

    They are bias[features], of the type of the ``sums``; for each other one [features], or [batch *
    rows * columns, features]; and y[batch, rows, columns, features]. The kernel sees as many rows
    and columns as ``lines``.
    """
    bias = kernel.argument("bias", (features,), sums)
    pixels = kernel.dim("pixels")
    declared = [
        kernel.argument(f"x{i}", (features,) if is_row else (pixels, features), dtype)
        for i, (is_row, dtype) in enumerate(after.inputs)
    ]
    y = kernel.argument("y", (batch, *sizes, features), after.out)
    seen = (batch, lines[0], lines[1] * features)
    others = tuple(
        other if is_row else as_lines(other, seen)
        for other, is_row in zip(declared, after.columns, strict=True)
    )
    return PixelOutput(as_lines(y, seen), bias, others, after)


def as_lines(buffer: b.Buffer, shape: b.Indices) -> b.Buffer:
    """The same memory with pixels and channels of a row as one dimension."""
    return T.decl_buffer(list(shape), str(buffer.dtype), data=buffer.data, layout=None)
