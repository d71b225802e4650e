"""Convolutions whose windows are moved, point by point, by offsets (Dai et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import held
from maxtool.importers.onnx.refusals import require


@dataclass(frozen=True, slots=True)
class Window:
    """A window over images: its sizes, and where it stands; pairs are (height, width)."""

    kernel: tuple[int, ...]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def points(self) -> int:
        """Points of a window."""
        return self.kernel[0] * self.kernel[1]

    def places(self, counts: tuple[int, int], axis: int) -> np.ndarray[tuple[int, ...], np.dtype]:
        """The row or column of each point where nothing moves it, ``[points, height, width]``."""
        of_kernel = np.arange(self.kernel[axis]) * self.dilations[axis]
        starts = np.arange(counts[axis]) * self.strides[axis] - self.pads[axis]
        inside = of_kernel[:, None] if axis == 0 else of_kernel[None, :]
        points = np.broadcast_to(inside, self.kernel).reshape(-1, 1, 1)
        windows = starts[None, :, None] if axis == 0 else starts[None, None, :]
        return np.broadcast_to(points + windows, (self.points, *counts))


@operator("DeformConv")
def deform_conv(call: OperatorCall) -> Tensor:
    """A convolution of images at places between their pixels, which offsets say."""
    x, weight, offset = call.x(0), call.x(1), call.x(2)
    sizes = x.rank == weight.rank == offset.rank == 4
    static = x.shape[1:].is_static and weight.shape.is_static and offset.shape[1:].is_static
    require(sizes and static, "images of two dimensions with known sizes are supported")
    features, inner, *kernel = weight.shape.static()
    window = Window(
        tuple(kernel),
        call.numbers("strides", [1, 1]),
        call.numbers("dilations", [1, 1]),
        call.numbers("pads", [0, 0, 0, 0]),
    )
    groups, parts = call.number("group", 1), call.number("offset_group", 1)
    channels = int(x.shape[1])
    fits = channels == inner * groups and features % groups == 0 and channels % parts == 0
    require(fits, f"{channels} channels in {groups} groups and {parts} groups of offsets")
    columns = _columns(call, window, parts)
    rows = ops.reshape(columns, [x.shape[0], *offset.shape[2:], groups, 1, inner * window.points])
    filters = ops.reshape(weight, [groups, features // groups, inner * window.points])
    products = ops.matmul(rows, ops.transpose(filters, 1, 2))
    result = ops.reshape(products, [x.shape[0], *offset.shape[2:], features])
    bias = call.maybe(3)
    result = result if bias is None else result + bias
    return ops.permute(result, (0, 3, 1, 2))


def _columns(call: OperatorCall, window: Window, parts: int) -> Tensor:
    """Elements that the windows read, ``[batch, height, width, channels, points]``."""
    x, offset, mask = call.x(0), call.x(2), call.maybe(4)
    batch, count = x.shape[0], window.points
    high, wide = (int(dim) for dim in offset.shape[2:])
    expected = [batch, parts * count * 2, high, wide]
    require(offset.shape == expected, f"offsets {offset.type} of {count} points")
    moved = ops.reshape(offset, [batch, parts, count, 2, high, wide])
    factors = None if mask is None else ops.reshape(mask, [batch, parts, count, high, wide, 1])
    image = ops.permute(x, (0, 2, 3, 1))
    read = []
    for part, channels in enumerate(ops.chunk(image, parts, 3)):
        own = moved[:, part]
        grid = [_coordinate(call, window, own[:, :, axis], axis) for axis in (1, 0)]
        flat = ops.reshape(ops.stack(grid, -1), [batch, count * high, wide, 2])
        taken = ops.grid_sample(channels, flat, "linear", "zeros", False)
        taken = ops.reshape(taken, [batch, count, high, wide, channels.shape[3]])
        read.append(taken if factors is None else taken * factors[:, part])
    return ops.permute(ops.concat(read, 4), (0, 2, 3, 4, 1))


def _coordinate(call: OperatorCall, window: Window, moved: Tensor, axis: int) -> Tensor:
    """Rows or columns of pixels as numbers from -1 to 1, the edges of the image."""
    counts = (int(moved.shape[2]), int(moved.shape[3]))
    places = held(call, window.places(counts, axis).astype(moved.dtype.to_numpy()))
    size = float(int(call.x(0).shape[2 + axis]))
    return ((moved + places) * 2.0 + 1.0) / size - 1.0
