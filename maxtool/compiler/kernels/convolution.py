"""Convolution of images of any rank, whose channels come last, and transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, Pieces, Pixel
from maxtool.compiler.kernels.image_windows import InputImage, image_dims
from maxtool.compiler.kernels.kernel_options import Window


def convolution(
    backend: Backend,
    dtype: str,
    window: Window,
    channels: int,
    features: int,
    groups: int,
    transposed: bool = False,
) -> b.PrimFunc:
    """Build the convolution.

    Parameters of the kernel: x[batch, sizes..., channels], f[window..., channels / groups,
    features], bias[features], y[batch, output sizes..., features], all of ``dtype``.
    """
    inner, outer = channels // groups, features // groups
    spatial = len(window.size)
    with b.kernel(f"convolution_{dtype}") as kernel:
        batch, sizes = kernel.dim("batch"), image_dims(kernel, spatial)
        outputs = (batch, *image_dims(kernel, spatial, "o"))
        x = kernel.argument("x", (batch, *sizes, channels), e.storage_type(dtype))
        f = kernel.argument("f", (*window.size, inner, features), e.storage_type(dtype))
        bias = kernel.argument("bias", (features,), e.storage_type(dtype))
        y = kernel.argument("y", (*outputs, features), e.storage_type(dtype))

        def block(pixel: Pixel, group: b.Expr, first: b.Expr, pieces: Pieces) -> None:
            sums = b.scratch((sum(n for _, n in pieces),), e.compute_type(dtype))
            for o, n in pieces:
                b.store(sums, backend.read(bias, (first + o,), dtype, n), (o,), n)

            def add(taps: Sequence[b.Expr], places: Sequence[b.Expr]) -> None:
                with T.serial(b.integer(inner)) as c:
                    source = (pixel[0], *places, b.index(group * inner + c))
                    value = b.let(backend.read(x, source, dtype))
                    for o, n in pieces:
                        factor = backend.read(f, (*taps, c, first + o), dtype, n)
                        b.store(sums, b.load(sums, (o,), n) + b.splat(value, n) * factor, (o,), n)

            InputImage(window, sizes, pixel[1:], transposed).each(add)
            for o, n in pieces:
                backend.write(y, b.load(sums, (o,), n), (*pixel, first + o), dtype, n)

        work = inner * features
        for size in window.size:
            work *= size
        backend.each_pixel(outputs, (groups, outer), block, dtype=dtype, work=work)
    return kernel.function
