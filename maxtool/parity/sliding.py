"""Windows that slide over images, whose channels come last: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
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
    exact: bool = False,  # noqa: ARG001 - float64 is so
) -> Floats:
    """Convolve ``[batch, sizes..., channels]`` with ``[kernel..., inner, features]``.

    One place of the window after the other, for all windows at once.
    """
    kernel, features = weight.shape[:-2], weight.shape[-1]
    pixels = _pixels(x, kernel, stride, dilation, padding)
    total = np.zeros((x.shape[0], *(len(at) for at in pixels), features))
    for taps in np.ndindex(*kernel):
        seen = _windows(x, [at[:, tap : tap + 1] for at, tap in zip(pixels, taps, strict=True)], 0)
        total += _product(seen.reshape(*total.shape[:-1], x.shape[-1]), weight[taps], groups)
    return total + bias


def _integer_convolution(
    x: Integers,
    weight: Integers,
    bias: Integers,
    zero: int,
    **window: Any,  # noqa: ANN401
) -> Integers:
    """Convolve whole numbers less their zero point: float64 adds up so many products exactly."""
    centred = x.astype(np.float64) - zero
    sums = _convolution(centred, weight.astype(np.float64), np.zeros(len(bias)), **window)
    return (sums.astype(np.int64) + bias).astype(np.int32)


def _product(x: Floats, weight: Floats, groups: int) -> Floats:
    """Multiply ``[..., channels]`` with ``[inner, features]``, each group for itself."""
    inner, features = weight.shape
    if inner == 1 and groups == features:
        return np.asarray(x * weight[0])
    rows = x.reshape(-1, groups, inner).swapaxes(0, 1)
    columns = weight.reshape(inner, groups, -1).swapaxes(0, 1)
    return np.asarray((rows @ columns).swapaxes(0, 1).reshape(*x.shape[:-1], features))


def _transposed(
    x: Floats,
    weight: Floats,
    bias: Floats,
    stride: Sizes,
    dilation: Sizes,
    padding: Sizes,
    groups: int,
) -> Floats:
    """Add the products of each input pixel to its window, and cut off the padding."""
    kernel, batch = weight.shape[:-2], x.shape[0]
    whole = [
        (size - 1) * step + reach * (taps - 1) + 1
        for size, step, reach, taps in zip(x.shape[1:-1], stride, dilation, kernel, strict=True)
    ]
    ends = [max(size, size - after) for size, after in zip(whole, padding[1::2], strict=True)]
    starts = [max(0, -before) for before in padding[::2]]
    room = [start + end for start, end in zip(starts, ends, strict=True)]
    sums = np.zeros((batch, *room, weight.shape[-1]))
    pairs = zip(np.split(x, groups, -1), np.split(weight, groups, -1), strict=True)
    spread = list(pairs)
    for taps in np.ndindex(*kernel):
        products = np.concatenate([part @ one[taps] for part, one in spread], -1)
        places = tuple(
            slice(start + tap * reach, start + tap * reach + (size - 1) * step + 1, step)
            if size
            else slice(0)
            for start, tap, reach, step, size in zip(
                starts, taps, dilation, stride, x.shape[1:-1], strict=True
            )
        )
        sums[(slice(None), *places)] += products
    kept = tuple(
        slice(start + before, start + size - after)
        for start, size, before, after in zip(
            starts, whole, padding[::2], padding[1::2], strict=True
        )
    )
    return np.asarray(sums[(slice(None), *kept)] + bias)


def _max_pool(x: Floats, kernel: Sizes, count_boundary: bool, **window: Any) -> Floats:  # noqa: ARG001, ANN401
    pixels = _pixels(x, kernel, **window)
    return _windows(x, pixels, -np.inf).max(tuple(_kernel_axes(kernel)))


def _max_pool_indices(x: Floats, kernel: Sizes, count_boundary: bool, **window: Any) -> Integers:  # noqa: ARG001, ANN401
    pixels = _pixels(x, kernel, **window)
    axes = _kernel_axes(kernel)
    sizes = x.shape[1:-1]
    places = np.arange(np.prod(sizes), dtype=np.float64).reshape(1, *sizes, 1)
    seen = np.moveaxis(_windows(x, pixels, -np.inf), axes, range(-len(axes), 0))
    where = np.moveaxis(_windows(places, pixels, -1), axes, range(-len(axes), 0))
    seen = seen.reshape(*seen.shape[: -len(axes)], -1)
    where = np.broadcast_to(where.reshape(*where.shape[: -len(axes)], -1), seen.shape)
    best = _first_largest(seen, where >= 0)
    return np.maximum(np.take_along_axis(where, best[..., None], -1)[..., 0], 0).astype(np.int64)


def _first_largest(values: Floats, inside: Any) -> Integers:  # noqa: ANN401
    """Return where the first largest value that is inside is; of NaN the first."""
    order = np.where(np.isnan(values), np.inf, values)
    rank = np.where(inside, 1 + np.isnan(values), 0)
    best = np.where(rank == rank.max(-1, keepdims=True), order, -np.inf)
    top = (rank == rank.max(-1, keepdims=True)) & (best == best.max(-1, keepdims=True))
    return np.asarray(top.argmax(-1))


def _sum_pool(x: Floats, kernel: Sizes, count_boundary: bool, **window: Any) -> Floats:  # noqa: ARG001, ANN401
    pixels = _pixels(x, kernel, **window)
    return _windows(x, pixels, 0).sum(tuple(_kernel_axes(kernel)))


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
    counts = [
        ((count_boundary | (at >= 0)) & (at < end)).sum(1)
        for at, end in zip(pixels, ends, strict=True)
    ]
    return np.asarray(sums / reduce(np.multiply.outer, counts)[..., None])


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
        if not x.shape[axis]:  # all is outside
            x = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), outside)
        taken = x.take(at.clip(0, x.shape[axis] - 1), axis)
        beside = (1,) * (taken.ndim - axis - 2)
        x = np.where(inside.reshape(*at.shape, *beside), taken, outside)
    return x


def _kernel_axes(kernel: Sizes) -> list[int]:
    return [2 * number + 2 for number in range(len(kernel))]


COMPUTED: Definitions = {
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _avg_pool),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    "integer_convolution": _integer_convolution,
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _max_pool),
    **dict.fromkeys(
        ("max_pool_indices1d", "max_pool_indices2d", "max_pool_indices3d"), _max_pool_indices
    ),
    **dict.fromkeys(("sum_pool1d", "sum_pool2d", "sum_pool3d"), _sum_pool),
}
