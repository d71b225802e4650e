"""Pooling: one element of each window of signals, images and volumes, channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maxtool.dtype import BYTES, DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.operators.convolving import (
    channels_first,
    channels_last,
    padding,
    reach,
    with_same_padding,
)
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

LARGEST: Sequence[Callable[..., Tensor]] = (ops.max_pool1d, ops.max_pool2d, ops.max_pool3d)
MEANS: Sequence[Callable[..., Tensor]] = (ops.avg_pool1d, ops.avg_pool2d, ops.avg_pool3d)


def _window(call: OperatorCall, x: Tensor) -> tuple[Any, ...]:
    """Kernel, strides, dilations, padding and the rounding of the number of windows."""
    kernel = call.numbers("kernel_shape")
    require(
        len(kernel) == x.rank - 2, f"{len(kernel)} sizes of windows for {x.rank - 2} dimensions"
    )
    strides, dilations = (
        call.numbers(name, [1] * len(kernel)) for name in ("strides", "dilations")
    )
    pads = padding(call, reach(kernel, dilations), [*x.shape[2:]])
    return kernel, strides, dilations, pads, call.flag("ceil_mode")


def _grown(call: OperatorCall, image: Tensor, value: float = 0.0) -> Tensor:
    """An image, channels last, with padding that follows from a named size."""
    kernel = call.numbers("kernel_shape")
    sizes = reach(kernel, call.numbers("dilations", [1] * len(kernel)))
    return with_same_padding(call, image, sizes, value)


@operator("MaxPool")
def max_pool(call: OperatorCall) -> list[Tensor]:
    """The largest element of each window, and its place among all elements."""
    x = call.x()
    is_bytes = x.dtype in BYTES and not call.wants(1)
    wide = x if x.dtype.is_float() or is_bytes else ops.cast(x, DType.float32)
    window = _window(call, x)
    lowest = float(np.iinfo(x.dtype.to_numpy()).min) if is_bytes else float("-inf")
    image = _grown(call, channels_last(wide), lowest)
    padded = image.shape[1:-1] != x.shape[2:]
    require(not (padded and call.wants(1)), "places of largest elements need known sizes")
    pooled = ops.cast(channels_first(LARGEST[x.rank - 3](image, *window)), x.dtype)
    if not call.wants(1):
        return [pooled]
    places = channels_first(ops.max_pool_indices(image, *window))
    return [pooled, _among_all(call, x, places)]


def _among_all(call: OperatorCall, x: Tensor, places: Tensor) -> Tensor:
    """Places in images as places in the whole tensor."""
    require(x.shape[1:].is_static, "places of largest elements need known sizes")
    channels, *sizes = x.shape[1:].static()
    if call.flag("storage_order"):
        places = _columns_first(places, sizes)
    image = int(np.prod(sizes))
    ones = [1] * len(sizes)
    first = ops.reshape(ops.range(0, x.shape[0]) * (channels * image), [x.shape[0], 1, *ones])
    each = Tensor((np.arange(channels) * image).reshape(1, channels, *ones))
    return places + first + each


def _columns_first(places: Tensor, sizes: Sequence[int]) -> Tensor:
    """Row-major places in an image as column-major ones."""
    total, rest, step = None, places, 1
    for axis, size in enumerate(sizes):
        below = int(np.prod(sizes[axis + 1 :]))
        number = ops.floordiv(rest, below)
        rest = ops.mod(rest, below)
        total = number * step if total is None else total + number * step
        step *= size
    return places if total is None else total


@operator("AveragePool")
def average_pool(call: OperatorCall) -> Tensor:
    """The mean of each window."""
    x = call.x()
    window, counts = _window(call, x), call.flag("count_include_pad")
    mean, image = MEANS[x.rank - 3], channels_last(x)
    grown = _grown(call, image)
    if grown is image or counts:
        return channels_first(mean(grown, *window, count_boundary=counts))
    ones = full(known(np.ones((), x.dtype.to_numpy())), [1, *image.shape[1:-1], 1])
    shares = mean(_grown(call, ones), *window, count_boundary=True)
    return channels_first(mean(grown, *window, count_boundary=True) / shares)


@operator("LpPool")
def lp_pool(call: OperatorCall) -> Tensor:
    """The norm of each window."""
    x = call.x()
    kernel, strides, dilations, pads, ceil_mode = _window(call, x)
    p = call.number("p", 2)
    image = _grown(call, channels_last(x))
    pooled = ops.lp_pool(image, kernel, strides, dilations, pads, ceil_mode, p)
    return channels_first(pooled)


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: OperatorCall) -> Tensor:
    """The mean, or the largest element, of each channel."""
    x = call.x()
    axes = list(range(2, x.rank))
    return ops.mean(x, axes) if call.op_type == "GlobalAveragePool" else ops.max(x, axis=axes)


@operator("GlobalLpPool")
def global_lp_pool(call: OperatorCall) -> Tensor:
    """The norm of each channel."""
    x, p = call.x(), float(call.number("p", 2))
    sums = ops.sum(ops.pow(ops.abs(x), p), list(range(2, x.rank)))
    return ops.pow(sums, 1.0 / p)


@operator("MaxUnpool")
def max_unpool(call: OperatorCall) -> Tensor:
    """Elements at their places in zeros: the inverse of ``MaxPool``."""
    x, places = call.x(0), call.x(1)
    require(not call.has(2), "an output_shape is not supported")
    kernel = call.numbers("kernel_shape")
    count = len(kernel)
    strides, pads = call.numbers("strides", [1] * count), call.numbers("pads", [0] * (2 * count))
    sizes = [
        (dim - 1) * strides[at] + (kernel[at] - pads[at] - pads[at + count])
        for at, dim in enumerate(x.shape[2:])
    ]
    require(x.shape.is_static, "its sizes are not known")
    shape = [*x.shape[:2], *sizes]
    total = int(np.prod([int(dim) for dim in shape]))
    zeros = Tensor(np.zeros(total, x.dtype.to_numpy()))
    flat = ops.scatter_nd(zeros, ops.reshape(x, [-1]), ops.reshape(places, [-1, 1]))
    return ops.reshape(flat, shape)
