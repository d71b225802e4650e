"""Pools of images of any rank, whose channels come last."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, Pieces, Pixel
from maxtool.compiler.kernels.element_order import COMBINE, above
from maxtool.compiler.kernels.image_windows import InputImage, image_dims
from maxtool.compiler.kernels.kernel_options import Window


def pool(
    backend: Backend, op: str, dtype: str, window: Window, channels: int, count_padding: bool
) -> b.PrimFunc:
    """Build the maximum (max_pool), sum (sum_pool) or mean (avg_pool) of each window.

    Parameters of the kernel: x[batch, sizes..., channels], y[batch, output sizes..., channels] of
    ``dtype``. The padding counts in a mean, as zeros, if ``count_padding``.
    """
    computed = e.compute_type(dtype)
    combine, neutral = COMBINE["max" if op == "max_pool" else "sum"]
    with b.kernel(f"{op}_{dtype}") as kernel:
        batch, sizes = kernel.dim("batch"), image_dims(kernel, len(window.size))
        outputs = (batch, *image_dims(kernel, len(window.size), "o"))
        x = kernel.argument("x", (batch, *sizes, channels), e.storage_type(dtype))
        y = kernel.argument("y", (*outputs, channels), e.storage_type(dtype))

        def block(pixel: Pixel, _group: b.Expr, first: b.Expr, pieces: Pieces) -> None:
            image = InputImage(window, sizes, pixel[1:])
            total = b.scratch((sum(n for _, n in pieces),), computed)
            for o, n in pieces:
                b.store(total, b.splat(neutral(computed), n), (o,), n)

            def take(_taps: Sequence[b.Expr], places: Sequence[b.Expr]) -> None:
                for o, n in pieces:
                    value = b.let(backend.read(x, (pixel[0], *places, first + o), dtype, n))
                    b.store(total, combine(b.load(total, (o,), n), value), (o,), n)

            image.each(take)
            if op == "avg_pool":
                count = b.let(T.Cast(computed, image.count(padding=count_padding)))
            for o, n in pieces:
                value = b.load(total, (o,), n)
                if op == "avg_pool":
                    value = value / b.splat(count, n)
                backend.write(y, value, (*pixel, first + o), dtype, n)

        work = prod(window.size) * channels
        backend.each_pixel(outputs, (1, channels), block, dtype=dtype, work=work)
    return kernel.function


def pool_indices(backend: Backend, dtype: str, window: Window, channels: int) -> b.PrimFunc:
    """Build the place of the first largest element of each window, or of its first NaN.

    Parameters of the kernel: x[batch, sizes..., channels] of ``dtype``, y[batch, output sizes...,
    channels] int64: places in the image, whose spatial dimensions count as one.
    """
    computed = e.compute_type(dtype)
    with b.kernel(f"pool_indices_{dtype}") as kernel:
        batch, sizes = kernel.dim("batch"), image_dims(kernel, len(window.size))
        outputs = (batch, *image_dims(kernel, len(window.size), "o"))
        x = kernel.argument("x", (batch, *sizes, channels), e.storage_type(dtype))
        y = kernel.argument("y", (*outputs, channels), "int64")

        def channel(pixel: Pixel, at: b.Expr) -> None:
            largest = b.cell(tirx.const(0, computed))
            found = b.cell(b.integer(-1))

            def compare(_taps: Sequence[b.Expr], places: Sequence[b.Expr]) -> None:
                value = b.let(backend.read(x, (pixel[0], *places, at), dtype))
                better = tirx.any(found.value < 0, above(value, largest.value, computed))
                with b.when(better):
                    largest.set(value)
                    found.set(_flat(places, sizes))

            InputImage(window, sizes, pixel[1:]).each(compare)
            b.store(y, b.greatest(found.value, 0), (*pixel, at))

        def block(pixel: Pixel, _group: b.Expr, first: b.Expr, pieces: Pieces) -> None:
            with T.serial(b.integer(sum(n for _, n in pieces))) as offset:
                channel(pixel, b.index(first + offset))

        work = prod(window.size) * channels
        backend.each_pixel(outputs, (1, channels), block, dtype=dtype, work=work)
    return kernel.function


def _flat(places: Sequence[b.Expr], sizes: Sequence[b.Expr]) -> b.Expr:
    """The place along several dimensions as one number."""
    place, *others = places
    for at, size in zip(others, sizes[1:], strict=True):
        place = place * size + at
    return place
