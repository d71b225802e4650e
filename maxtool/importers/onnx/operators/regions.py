"""The operator of detectors that samples regions of images, each into as many bins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.operators.convolving import channels_first, channels_last
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Size, known

HALF, WHOLE = "half_pixel", "output_half_pixel"


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension of all regions, each ``[regions, 1]``, in pixels.

    Attributes:
        start: The place where it begins.
        bin: The size of a bin.
        count: The samples in a bin, as a float; there may be none.
        bins: The number of bins.
        size: The pixels of the image, as a float.
    """

    start: Tensor
    bin: Tensor
    count: Tensor
    bins: int
    size: Tensor

    def sample(self, turn: Tensor) -> Sample:
        """The sample of that number in each bin."""
        inside = (turn + 0.5) / ops.maximum(self.count, 1.0)
        bins = known(np.arange(self.bins, dtype=np.float32))
        place = self.start + (ops.reshape(bins, [1, self.bins]) + inside) * self.bin
        is_near = ops.logical_and(place >= -1.0, place <= self.size)
        last = self.size - 1.0
        pixel = ops.minimum(ops.maximum(place, 0.0), last)
        first = ops.floor(pixel)
        part = pixel - first
        weights = (ops.where(is_near, one, 0.0) for one in (1.0 - part, part))
        places = (ops.cast(one, DType.int64) for one in (first, ops.minimum(first + 1.0, last)))
        return Sample(ops.less(turn, self.count), list(zip(places, weights, strict=True)))


@dataclass(frozen=True, slots=True)
class Sample:
    """Sample of regions: whether there is one, and the two pixels around it with their weights."""

    exists: Tensor
    taps: list[tuple[Tensor, Tensor]]


@operator("RoiAlign", since=10)
def roi_align(call: OperatorCall) -> Tensor:
    """Bilinear samples of regions, their mean or their largest for each bin."""
    x, rois, images = call.x(0), call.x(1), call.x(2)
    shaped = x.rank == 4 and rois.rank == 2 and rois.shape[1] == 4 and images.rank == 1
    require(shaped, "images of four dimensions, four numbers for each region, and its image")
    mode = call.text("mode", "avg")
    require(mode in {"avg", "max"}, f"there is no mode {mode!r}")
    rows, columns = (_side(call, rois, at) for at in (1, 0))
    return channels_first(_sampled(channels_last(x), images, (rows, columns), mode))


def _side(call: OperatorCall, rois: Tensor, at: int) -> Side:
    """The side of regions whose ends are the columns ``at`` and ``at + 2``."""
    coordinates = HALF if call.opset >= 16 else WHOLE
    coordinates = call.text("coordinate_transformation_mode", coordinates)
    require(coordinates in {HALF, WHOLE}, f"there is no mode {coordinates!r} of coordinates")
    shift = 0.5 if coordinates == HALF else 0.0
    wide, scale = ops.cast(rois, DType.float32), call.real("spatial_scale", 1.0)
    start, end = (
        ops.slice_tensor(wide, (slice(None), slice(one, one + 1))) * scale - shift
        for one in (at, at + 2)
    )
    length = end - start if coordinates == HALF else ops.maximum(end - start, 1.0)
    bins = call.number("output_width" if at == 0 else "output_height", 1)
    require(bins > 0, f"a region has {bins} bins")
    ratio = call.number("sampling_ratio", 0)
    count = ops.maximum(-ops.floor(-length / float(bins)), 0.0)
    if ratio > 0:
        count = full(known(np.array(ratio, np.float32)), [*length.shape])
    return Side(start, length / float(bins), count, bins, _size(call.x(0).shape[3 - at]))


def _size(size: Size) -> Tensor:
    return ops.cast(ops.reshape(ops.shape_to_tensor([size]), []), DType.float32)


def _sampled(x: Tensor, images: Tensor, sides: tuple[Side, Side], mode: str) -> Tensor:
    """``[regions, bins, bins, channels]`` of ``[images, rows, columns, channels]``."""
    rows, columns = sides
    shape: list[Size] = [images.shape[0], rows.bins, columns.bins]
    image = ops.broadcast_to(ops.reshape(ops.cast(images, DType.int64), [-1, 1, 1]), shape)
    pixels = ops.cast(x, DType.float32)
    high, wide = (_most(one.count) for one in sides)
    is_mean = mode == "avg"
    first = full(known(np.array(0 if is_mean else -np.inf, np.float32)), [*shape, x.shape[3]])

    def add(turn: Tensor, before: Tensor) -> list[Tensor]:
        down, along = rows.sample(ops.floor(turn / wide)), columns.sample(ops.mod(turn, wide))
        parts = [_part(pixels, image, (row, column)) for row in down.taps for column in along.taps]
        exists = ops.unsqueeze(ops.unsqueeze(ops.logical_and(down.exists, along.exists), 2), 3)
        if is_mean:
            found = before + reduce(lambda one, other: one + other, parts)
        else:
            found = ops.maximum(before, reduce(ops.maximum, parts))
        return [turn + 1.0, ops.where(exists, found, before)]

    turns = high * wide
    begin = known(np.zeros((), np.float32))
    _, total = ops.while_loop([begin, first], lambda turn, _: ops.less(turn, turns), add)
    samples = ops.reshape(rows.count * columns.count, [-1, 1, 1, 1])
    mean = total / ops.maximum(samples, 1.0) if is_mean else total
    return ops.cast(ops.where(ops.greater(samples, 0.0), mean, 0.0), x.dtype)


def _most(count: Tensor) -> Tensor:
    return ops.maximum(ops.reshape(ops.max(count, axis=[0, 1]), []), 1.0)


def _part(
    pixels: Tensor, image: Tensor, taps: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> Tensor:
    """The pixels of one corner, weighted."""
    (row, down), (column, along) = taps
    places = [ops.broadcast_to(ops.unsqueeze(row, 2), image.shape)]
    places.append(ops.broadcast_to(ops.unsqueeze(column, 1), image.shape))
    weight = ops.unsqueeze(down, 2) * ops.unsqueeze(along, 1)
    return ops.gather_nd(pixels, ops.stack([image, *places], -1)) * ops.unsqueeze(weight, 3)
