"""Windows that slide over images, whose channels come last: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from maxtool.parity.array_types import Definitions, Floats, Integers

Sizes: TypeAlias = tuple[int, ...]


def _convolution(
    x: Floats,
    weight: Floats,
    bias: Floats,
    stride: Sizes,
    dilation: Sizes,
    padding: Sizes,
    groups: int,
) -> Floats:
    """Convolve ``[batch, sizes..., channels]`` with ``[kernel..., inner, features]``."""
    kernel = weight.shape[:-2]
    pixels = _pixels(x, kernel, stride, dilation, padding)
    windows = _windows(x, pixels, 0)
    inner = [*_kernel_axes(kernel), windows.ndim - 1]
    parts = zip(np.split(windows, groups, -1), np.split(weight, groups, -1), strict=True)
    products = [np.tensordot(part, one, (inner, range(len(inner)))) for part, one in parts]
    return np.concatenate(products, -1) + bias


def _max_pool(x: Floats, kernel: Sizes, count_boundary: bool, **window: Any) -> Floats:  # noqa: ARG001, ANN401
    pixels = _pixels(x, kernel, **window)
    return _windows(x, pixels, -np.inf).max(tuple(_kernel_axes(kernel)))


def _avg_pool(
    x: Floats,
    kernel: Sizes,
    padding: Sizes,
    count_boundary: bool,
    **window: Any,  # noqa: ANN401
) -> Floats:
    """The mean of each window; of the padding too, or of what is in the image."""
    pixels = _pixels(x, kernel, padding=padding, **window)
    sums = _windows(x, pixels, 0).sum(tuple(_kernel_axes(kernel)))
    ends = [
        size + count_boundary * after
        for size, after in zip(x.shape[1:], padding[1::2], strict=False)
    ]
    rows, columns = (
        ((count_boundary | (at >= 0)) & (at < end)).sum(1)
        for at, end in zip(pixels, ends, strict=True)
    )
    return sums / np.outer(rows, columns)[..., None]


def _pixels(
    x: Floats,
    kernel: Sizes,
    stride: Sizes,
    dilation: Sizes,
    padding: Sizes,
    ceil_mode: bool = False,
) -> list[Integers]:
    """Return, for each spatial dimension, the input pixels ``[outputs, kernel]`` of the windows."""
    rows = zip(x.shape[1:], kernel, stride, dilation, padding[::2], padding[1::2], strict=False)
    return [_along(*row, ceil_mode=ceil_mode) for row in rows]


def _along(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int, *, ceil_mode: bool
) -> Integers:
    starts = before + size + after - dilation * (kernel - 1)
    count = -(-starts // stride)
    if ceil_mode and (starts - 1) % stride and count * stride < size + before:
        count += 1
    first = stride * np.arange(count) - before
    return first[:, None] + dilation * np.arange(kernel)


def _windows(x: Floats, pixels: Sequence[Integers], outside: float) -> Floats:
    """The pixels ``[batch, outputs, kernel, ..., channels]``, a pair for each dimension."""
    for number, at in enumerate(pixels):
        axis = 1 + 2 * number
        inside = (at >= 0) & (at < x.shape[axis])
        taken = x.take(at.clip(0, x.shape[axis] - 1), axis)
        beside = (1,) * (taken.ndim - axis - 2)
        x = np.where(inside.reshape(*at.shape, *beside), taken, outside)
    return x


def _kernel_axes(kernel: Sizes) -> list[int]:
    return [2 * number + 2 for number in range(len(kernel))]


COMPUTED: Definitions = {
    "avg_pool2d": _avg_pool,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "max_pool2d": _max_pool,
}
