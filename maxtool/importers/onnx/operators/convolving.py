"""Convolutions, plain and transposed, of signals, images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from maxtool.graph import Dim, Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.padding import needs_cutting, padded_for_windows
from maxtool.importers.onnx.refusals import require

CONVOLUTIONS: Sequence[Callable[..., Tensor]] = (ops.conv1d, ops.conv2d, ops.conv3d)
TRANSPOSED: Sequence[Callable[..., Tensor]] = (
    ops.conv_transpose1d,
    ops.conv_transpose2d,
    ops.conv_transpose3d,
)
"""By the number of spatial dimensions, less 1; channels come last."""


def channels_last(x: Tensor) -> Tensor:
    """``[batch, channels, ...]`` as ``[batch, ..., channels]``."""
    require(2 < x.rank < 6, f"its input has {x.rank - 2} spatial dimensions; 1 to 3 are supported")
    return ops.permute(x, (0, *range(2, x.rank), 1))


def channels_first(x: Tensor) -> Tensor:
    """``[batch, ..., channels]`` as ``[batch, channels, ...]``."""
    return ops.permute(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def reach(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The sizes of windows, the pixels between their elements counted."""
    return [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]


def padding(call: OperatorCall, sizes: Sequence[int], spatial: Sequence[Dim]) -> list[int]:
    """(before, after) of each spatial dimension, as ``pads`` or ``auto_pad`` say.

    ``sizes`` are those of the window, its dilation counted.
    """
    mode, count = call.text("auto_pad", "NOTSET"), len(sizes)
    if mode in ("NOTSET", "VALID"):
        none = [0] * (2 * count)
        pads = call.numbers("pads", none) if mode == "NOTSET" else none
        require(len(pads) == 2 * count, f"{len(pads)} pads for {count} dimensions")
        return [pads[at + side * count] for at in range(count) for side in range(2)]
    require(mode in ("SAME_UPPER", "SAME_LOWER"), f"there is no auto_pad {mode!r}")
    result: list[int] = []
    for size, stride, dim in zip(sizes, call.numbers("strides", [1] * count), spatial, strict=True):
        if needs_cutting(dim, size, stride):
            result += [0, 0]  # it is in the image itself
            continue
        length = int(dim) if dim.is_static else 1
        total = max((-(-length // stride) - 1) * stride + size - length, 0)
        result += _halves(total, upper=mode == "SAME_UPPER")
    return result


def with_same_padding(
    call: OperatorCall, image: Tensor, sizes: Sequence[int], value: float = 0.0
) -> Tensor:
    """``[batch, ..., channels]`` with what :func:`padding` leaves out of ``auto_pad``."""
    mode = call.text("auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return image
    strides = call.numbers("strides", [1] * len(sizes))
    return padded_for_windows(image, sizes, strides, value, upper=mode == "SAME_UPPER")


def _halves(total: int, *, upper: bool) -> tuple[int, int]:
    """A number in two parts, of which the second is the larger one, or the first."""
    low = total // 2 if upper else total - total // 2
    return low, total - low


def convolved(
    call: OperatorCall,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    convolve: Callable[..., Tensor] | None = None,
    around: float = 0.0,
) -> Tensor:
    """The convolution that a node's attributes describe, of ``[batch, channels, ...]``.

    ``weight`` is ``[features, channels / groups, ...]``. What convolves pads with what is
    ``around`` an image.
    """
    image, count = channels_last(x), x.rank - 2
    require(weight.rank == x.rank, f"the filter has {weight.rank} dimensions, not {x.rank}")
    require(weight.shape.is_static, "the filter's sizes are not known")
    dilations = call.numbers("dilations", [1] * count)
    kernel = [*weight.shape.static()[2:]]
    sizes = reach(kernel, dilations)
    pads = padding(call, sizes, [*x.shape[2:]])
    image = with_same_padding(call, image, sizes, around)
    filters = ops.permute(weight, (*range(2, x.rank), 1, 0))
    strides, groups = call.numbers("strides", [1] * count), call.number("group", 1)
    window = (_each(strides), _each(dilations), pads)
    own = convolve or CONVOLUTIONS[count - 1]
    return channels_first(own(image, filters, *window, groups, bias))


def _each(sizes: list[int]) -> int | list[int]:
    """The one number of signals, or those of images."""
    return sizes[0] if len(sizes) == 1 else sizes


@operator("ConvTranspose")
def conv_transpose(call: OperatorCall) -> Tensor:
    """A transposed convolution, channels first."""
    x, weight = call.x(0), call.x(1)
    image, count, groups = channels_last(x), x.rank - 2, call.number("group", 1)
    require(weight.rank == x.rank and weight.shape.is_static, "the filter does not fit the input")
    channels, features, *kernel = weight.shape.static()
    require(groups > 0 and channels % groups == 0, f"{channels} channels in {groups} groups")
    if groups == 1:
        filters = ops.permute(weight, (*range(2, x.rank), 0, 1))
    else:
        apart = ops.reshape(weight, [groups, channels // groups, features, *kernel])
        moved = ops.permute(apart, (*range(3, x.rank + 1), 1, 0, 2))
        filters = ops.reshape(moved, [*kernel, channels // groups, groups * features])
    strides = call.numbers("strides", [1] * count)
    dilations = call.numbers("dilations", [1] * count)
    more = call.numbers("output_padding", [0] * count)
    cut = _cut(call, reach(kernel, dilations), strides, more, [*x.shape[2:]])
    window = (_each(strides), _each(dilations), cut)
    result = TRANSPOSED[count - 1](image, filters, *window, groups, call.maybe(2), _each(more))
    return channels_first(result)


def _cut(
    call: OperatorCall,
    sizes: Sequence[int],
    strides: Sequence[int],
    more: Sequence[int],
    spatial: Sequence[Dim],
) -> list[int]:
    """Pixels that a transposed convolution cuts off on both sides of each dimension."""
    mode, wanted = call.text("auto_pad", "NOTSET"), call.attributes.get("output_shape")
    if wanted is None and mode in ("NOTSET", "VALID"):
        return padding(call, sizes, spatial)
    require(all(dim.is_static for dim in spatial), "output_shape and auto_pad need known sizes")
    lengths = [int(dim) for dim in spatial]
    outputs = call.numbers("output_shape", [a * b for a, b in zip(lengths, strides, strict=True)])
    pairs = zip(lengths, strides, sizes, more, outputs[-len(sizes) :], strict=True)
    totals = [(size - 1) * by + width + add - out for size, by, width, add, out in pairs]
    upper = mode == "SAME_UPPER"
    return [one for total in totals for one in _split_cut(total, upper=upper)]


def _split_cut(total: int, *, upper: bool) -> tuple[int, int]:
    """Pixels to cut off in two parts; missing ones are all added behind, as onnxruntime does."""
    return _halves(total, upper=upper) if total >= 0 else (0, total)


@operator("Col2Im")
def columns_to_image(call: OperatorCall) -> Tensor:
    """Columns of windows added up at their places in images."""
    x, sizes, kernel = call.x(), call.ints(1), call.ints(2)
    count = len(sizes)
    dilations, strides = (call.numbers(name, [1] * count) for name in ("dilations", "strides"))
    pads = call.numbers("pads", [0] * (2 * count))
    padded = [size + pads[at] + pads[at + count] for at, size in enumerate(sizes)]
    starts = [
        np.arange(0, padded[at] - (kernel[at] - 1) * dilations[at], strides[at])
        for at in range(count)
    ]
    offsets = [np.arange(kernel[at]) * dilations[at] for at in range(count)]
    along = [
        (offsets[at][:, None] + starts[at][None, :]) * int(np.prod(padded[at + 1 :]))
        for at in range(count)
    ]
    places = np.zeros((1, 1), np.int64)
    for one in along:
        grid = places[:, None, :, None] + one[None, :, None, :]
        places = grid.reshape(places.shape[0] * one.shape[0], -1)
    batch, rows, windows = x.shape
    require(rows.is_static and windows == places.shape[1], "its columns do not fit the image")
    channels = int(rows) // places.shape[0]
    flat = ops.reshape(x, [batch * channels, places.size])
    where = ops.broadcast_to(Tensor(places.reshape(1, -1)), flat.shape)
    total = int(np.prod(padded))
    zeros = ops.broadcast_to(
        Tensor(np.zeros((1, 1), x.dtype.to_numpy())), [batch * channels, total]
    )
    image = ops.reshape(ops.scatter_add(zeros, flat, where, 1), [batch, channels, *padded])
    inside = [slice(pads[at], pads[at] + sizes[at]) for at in range(count)]
    return ops.slice_tensor(image, (slice(None), slice(None), *inside))
