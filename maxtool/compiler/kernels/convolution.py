"""Convolution and pooling of images whose channels come last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, Pieces, Pixel
from maxtool.compiler.kernels.element_order import COMBINE
from maxtool.compiler.kernels.kernel_options import Window


@dataclass(frozen=True, slots=True)
class InputImage:
    """The input while a kernel is built, and the output pixel that is computed."""

    window: Window
    sizes: tuple[b.Expr, b.Expr]
    pixel: Sequence[b.Expr]

    def each(self, body: Callable[[Any, Any, Any, Any], None], padding: bool = False) -> None:
        """Run ``body(row, column, y, x)`` for each place of the window that is in the input.

        Places in the padding count too if ``padding`` is True.
        """
        height, width = self.window.size
        with T.serial(b.integer(height)) as r, T.serial(b.integer(width)) as s:
            places = [self._place(axis, at) for axis, at in enumerate((r, s))]
            with b.when(tirx.all(*(self._inside(i, at, padding) for i, at in enumerate(places)))):
                body(r, s, *places)

    def _place(self, axis: int, at: b.Expr) -> b.Expr:
        window = self.window
        start = self.pixel[axis] * window.stride[axis] - window.before[axis]
        return b.index(start + at * window.dilation[axis])

    def _inside(self, axis: int, at: b.Expr, padding: bool) -> b.Expr:
        size = self.sizes[axis]
        if padding:
            return at < size + self.window.after[axis]
        return tirx.all(at >= 0, at < size)


def convolution(
    backend: Backend, dtype: str, window: Window, channels: int, features: int, groups: int
) -> b.PrimFunc:
    """Build the convolution.

    Parameters of the kernel: x[batch, h, w, channels], f[r, s, channels / groups, features],
    bias[features], y[batch, oh, ow, features], all of ``dtype``.
    """
    inner, outer = channels // groups, features // groups
    with b.kernel(f"convolution_{dtype}") as kernel:
        batch, h, w, oh, ow = (kernel.dim(name) for name in ("batch", "h", "w", "oh", "ow"))
        x = kernel.argument("x", (batch, h, w, channels), e.storage_type(dtype))
        f = kernel.argument("f", (*window.size, inner, features), e.storage_type(dtype))
        bias = kernel.argument("bias", (features,), e.storage_type(dtype))
        y = kernel.argument("y", (batch, oh, ow, features), e.storage_type(dtype))

        def block(pixel: Pixel, group: b.Expr, first: b.Expr, pieces: Pieces) -> None:
            sums = b.scratch((sum(n for _, n in pieces),), e.compute_type(dtype))
            for o, n in pieces:
                b.store(sums, backend.read(bias, (first + o,), dtype, n), (o,), n)

            def add(row: b.Expr, column: b.Expr, top: b.Expr, left: b.Expr) -> None:
                with T.serial(b.integer(inner)) as c:
                    source = (pixel[0], top, left, b.index(group * inner + c))
                    value = b.let(backend.read(x, source, dtype))
                    for o, n in pieces:
                        factor = backend.read(f, (row, column, c, first + o), dtype, n)
                        b.store(sums, b.load(sums, (o,), n) + b.splat(value, n) * factor, (o,), n)

            InputImage(window, (h, w), pixel[1:]).each(add)
            for o, n in pieces:
                backend.write(y, b.load(sums, (o,), n), (*pixel, first + o), dtype, n)

        work = window.size[0] * window.size[1] * inner * features
        backend.each_pixel((batch, oh, ow), (groups, outer), block, dtype=dtype, work=work)
    return kernel.function


def pool(
    backend: Backend, op: str, dtype: str, window: Window, channels: int, count_padding: bool
) -> b.PrimFunc:
    """Build the maximum (max_pool2d) or mean (avg_pool2d) of each window.

    Parameters of the kernel: x[batch, h, w, channels], y[batch, oh, ow, channels] of ``dtype``. The
    padding counts in a mean, as zeros, if ``count_padding``.
    """
    computed = e.compute_type(dtype)
    combine, neutral = COMBINE["max" if op == "max_pool2d" else "sum"]
    with b.kernel(f"{op}_{dtype}") as kernel:
        batch, h, w, oh, ow = (kernel.dim(name) for name in ("batch", "h", "w", "oh", "ow"))
        x = kernel.argument("x", (batch, h, w, channels), e.storage_type(dtype))
        y = kernel.argument("y", (batch, oh, ow, channels), e.storage_type(dtype))

        def block(pixel: Pixel, _group: b.Expr, first: b.Expr, pieces: Pieces) -> None:
            image = InputImage(window, (h, w), pixel[1:])
            total = b.scratch((sum(n for _, n in pieces),), computed)
            for o, n in pieces:
                b.store(total, b.splat(neutral(computed), n), (o,), n)

            def take(_row: b.Expr, _column: b.Expr, top: b.Expr, left: b.Expr) -> None:
                for o, n in pieces:
                    value = b.let(backend.read(x, (pixel[0], top, left, first + o), dtype, n))
                    b.store(total, combine(b.load(total, (o,), n), value), (o,), n)

            image.each(take)
            count = b.cell(tirx.const(0, computed))
            if op != "max_pool2d":
                image.each(lambda *_: count.add(1), padding=count_padding)
            for o, n in pieces:
                value = b.load(total, (o,), n)
                if op != "max_pool2d":
                    value = value / b.splat(count.value, n)
                backend.write(y, value, (*pixel, first + o), dtype, n)

        work = window.size[0] * window.size[1] * channels
        backend.each_pixel((batch, oh, ow), (1, channels), block, dtype=dtype, work=work)
    return kernel.function
