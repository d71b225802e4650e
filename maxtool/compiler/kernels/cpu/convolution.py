"""Convolution and pooling of images whose channels come last: a task is an output pixel."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.element_order import COMBINE
from maxtool.compiler.kernels.image_windows import InputImage, split_pixel
from maxtool.compiler.kernels.kernel_options import Window

# Vectors of output channels that are computed together.
VECTORS = 4


def convolution(
    width: int, dtype: str, window: Window, channels: int, features: int, groups: int
) -> b.PrimFunc:
    """Build the convolution.

    Parameters of the kernel: x[batch, h, w, channels], f[r, s, channels / groups, features],
    bias[features], y[batch, oh, ow, features], all of ``dtype``.
    """
    width, compute_dtype = e.width_of(dtype, width), e.compute_type(dtype)
    inner, outer = channels // groups, features // groups
    with b.kernel(f"convolution_{dtype}") as kernel:
        batch, h, w, oh, ow = (kernel.dim(name) for name in ("batch", "h", "w", "oh", "ow"))
        x = kernel.argument("x", (batch, h, w, channels), e.storage_type(dtype))
        f = kernel.argument("f", (*window.size, inner, features), e.storage_type(dtype))
        bias = kernel.argument("bias", (features,), e.storage_type(dtype))
        y = kernel.argument("y", (batch, oh, ow, features), e.storage_type(dtype))

        def pixel(i: b.Expr) -> None:
            at, row, column = split_pixel(i, oh, ow)
            image = InputImage(window, (h, w), (row, column))

            def block(group: b.Expr, offset: b.Index, size: int) -> None:
                first = b.index(group * outer + offset)
                pieces = b.widths(size, width)
                sums = b.scratch((size,), compute_dtype)
                for o, n in pieces:
                    b.store(sums, e.read(bias, (first + o,), dtype, n), (o,), n)

                def place(r: b.Expr, s: b.Expr, top: b.Expr, left: b.Expr) -> None:
                    with T.serial(b.integer(inner)) as c:
                        source = (at, top, left, b.index(group * inner + c))
                        value = b.let(e.read(x, source, dtype))
                        for o, n in pieces:
                            factor = e.read(f, (r, s, c, first + o), dtype, n)
                            spread = value if n == 1 else T.broadcast(value, n)
                            b.store(sums, b.load(sums, (o,), n) + spread * factor, (o,), n)

                image.each(place)
                for o, n in pieces:
                    e.write(y, b.load(sums, (o,), n), (at, row, column, first + o), dtype, n)

            with T.serial(b.integer(groups)) as group:
                _blocks(outer, VECTORS * width, lambda offset, n: block(group, offset, n))

        b.each_row(batch * oh * ow, window.size[0] * window.size[1] * inner * features, pixel)
    return kernel.function


def pool(
    width: int, op: str, dtype: str, window: Window, channels: int, count_padding: bool
) -> b.PrimFunc:
    """Build the maximum (max_pool2d) or mean (avg_pool2d) of each window.

    Parameters of the kernel: x[batch, h, w, channels], y[batch, oh, ow, channels] of ``dtype``.

    Args:
        width: float32 elements of a vector.
        op: The operation.
        dtype: The element type.
        window: The window.
        channels: Channels of the image.
        count_padding: Whether the padding counts in a mean, as zeros.
    """
    width, compute_dtype = e.width_of(dtype, width), e.compute_type(dtype)
    combine, neutral = COMBINE["max" if op == "max_pool2d" else "sum"]
    with b.kernel(f"{op}_{dtype}") as kernel:
        batch, h, w, oh, ow = (kernel.dim(name) for name in ("batch", "h", "w", "oh", "ow"))
        x = kernel.argument("x", (batch, h, w, channels), e.storage_type(dtype))
        y = kernel.argument("y", (batch, oh, ow, channels), e.storage_type(dtype))

        def pixel(i: b.Expr) -> None:
            at, row, column = split_pixel(i, oh, ow)
            image = InputImage(window, (h, w), (row, column))
            count = b.cell(tirx.const(0, compute_dtype))
            image.each(lambda *_: count.add(1), padding=count_padding)

            def block(offset: b.Index, size: int) -> None:
                pieces = b.widths(size, width)
                total = b.scratch((size,), compute_dtype)
                for o, n in pieces:
                    start = neutral(compute_dtype)
                    b.store(total, start if n == 1 else T.broadcast(start, n), (o,), n)

                def place(_r: b.Expr, _s: b.Expr, top: b.Expr, left: b.Expr) -> None:
                    for o, n in pieces:
                        value = b.let(e.read(x, (at, top, left, offset + o), dtype, n))
                        b.store(total, combine(b.load(total, (o,), n), value), (o,), n)

                image.each(place)
                for o, n in pieces:
                    value = b.load(total, (o,), n)
                    if op != "max_pool2d":
                        value = value / (count.value if n == 1 else T.broadcast(count.value, n))
                    e.write(y, value, (at, row, column, offset + o), dtype, n)

            _blocks(channels, VECTORS * width, block)

        b.each_row(batch * oh * ow, window.size[0] * window.size[1] * channels, pixel)
    return kernel.function


def _blocks(count: int, size: int, body: Callable[[b.Index, int], None]) -> None:
    """Run ``body(offset, size)`` over ``count`` channels, ``size`` at a time, and the rest."""
    if whole := count // size:
        with T.serial(b.integer(whole)) as j:
            body(b.index(j * size), size)
    if rest := count % size:
        body(b.integer(whole * size), rest)
