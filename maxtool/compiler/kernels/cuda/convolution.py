"""Convolution and pooling of images whose channels come last: a thread for each result."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda.rows import each_element
from maxtool.compiler.kernels.element_order import COMBINE
from maxtool.compiler.kernels.image_windows import InputImage
from maxtool.compiler.kernels.kernel_options import Window


def convolution(
    dtype: str, window: Window, channels: int, features: int, groups: int
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
        with each_element(batch, oh, ow, features) as (at, row, column, feature):
            first = b.index(b.quotient(feature, outer) * inner)
            total = b.cell(e.read(bias, (feature,), dtype))

            def place(r: b.Expr, s: b.Expr, top: b.Expr, left: b.Expr) -> None:
                with T.serial(b.integer(inner)) as c:
                    value = e.read(x, (at, top, left, first + c), dtype)
                    factor = e.read(f, (r, s, c, feature), dtype)
                    total.add(value * factor)

            InputImage(window, (h, w), (row, column)).each(place)
            e.write(y, total.value, (at, row, column, feature), dtype)
    return kernel.function


def pool(op: str, dtype: str, window: Window, channels: int, count_padding: bool) -> b.PrimFunc:
    """Build the maximum (max_pool2d) or mean (avg_pool2d) of each window.

    Parameters of the kernel: x[batch, h, w, channels], y[batch, oh, ow, channels] of ``dtype``.

    Args:
        op: The operation.
        dtype: The element type.
        window: The window.
        channels: Channels of the image.
        count_padding: Whether the padding counts in a mean, as zeros.
    """
    compute_dtype = e.compute_type(dtype)
    combine, neutral = COMBINE["max" if op == "max_pool2d" else "sum"]
    with b.kernel(f"{op}_{dtype}") as kernel:
        batch, h, w, oh, ow = (kernel.dim(name) for name in ("batch", "h", "w", "oh", "ow"))
        x = kernel.argument("x", (batch, h, w, channels), e.storage_type(dtype))
        y = kernel.argument("y", (batch, oh, ow, channels), e.storage_type(dtype))
        with each_element(batch, oh, ow, b.integer(channels)) as (at, row, column, channel):
            image = InputImage(window, (h, w), (row, column))
            total, count = b.cell(neutral(compute_dtype)), b.cell(tirx.const(0, compute_dtype))

            def place(_r: b.Expr, _s: b.Expr, top: b.Expr, left: b.Expr) -> None:
                value = b.let(e.read(x, (at, top, left, channel), dtype))
                total.set(combine(total.value, value))

            image.each(place)
            if op != "max_pool2d":
                image.each(
                    lambda *_: count.add(tirx.const(1, compute_dtype)),
                    padding=count_padding,
                )
                total.set(total.value / count.value)
            e.write(y, total.value, (at, row, column, channel), dtype)
    return kernel.function
