"""Operators that interpolate: images of other sizes, places that a grid says, and such grids."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Dim, Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.convolving import channels_first, channels_last
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Size, as_tensor, polynomial, size_of, sizes_of

CROPPING = "tf_crop_and_resize"
GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


MOST_FACTOR = 64
"""The largest divisor of a scale of a named size."""


def _grown(size: Dim, scale: float) -> Size:
    """A size times its scale, rounded down after a product in float32, of which scales are.

    So 10 times 0.7 are 7, as exporters and onnxruntime have it, and not 6.
    """
    if size.is_static:
        return math.floor(np.float32(int(size)) * np.float32(scale))
    require(0 < scale < math.inf, f"a named size is scaled by {scale}")
    share = Fraction(scale).limit_denominator(MOST_FACTOR)
    require(np.float32(float(share)) == np.float32(scale), f"a named size is scaled by {scale}")
    return size_of(polynomial(size * share.numerator) // share.denominator)


def _scaled(x: Tensor, scales: list[float], mode: str, coordinates: str = "asymmetric") -> Tensor:
    """Scale each dimension, nearest elements being those before."""
    require(len(scales) == x.rank, f"{len(scales)} scales for {x.rank} dimensions")
    axes = [axis for axis, scale in enumerate(scales) if scale != 1]
    sizes = [_grown(x.shape[axis], scales[axis]) for axis in axes]
    given = [scales[axis] for axis in axes]
    return ops.resize(x, sizes, axes, mode, coordinates, scales=given, rounding="floor")


@operator("Upsample", since=1)
def upsample_by_attribute(call: OperatorCall) -> Tensor:
    """Scales as an attribute."""
    scales = [float(one) for one in call.attribute("scales")]
    return _scaled(call.x(), scales, call.text("mode", "nearest"))


@operator("Upsample", since=9)
@operator("Resize", since=10)
def upsample(call: OperatorCall) -> Tensor:
    """Scales as an operand."""
    scales = [float(one) for one in call.known(1)]
    return _scaled(call.x(), scales, call.text("mode", "nearest"))


@operator("Resize", since=11)
def resize(call: OperatorCall) -> Tensor:
    """Other sizes, by scales or as they are given."""
    call.decide(1, 2, 3)
    x = call.x()
    axes = [axis_in(axis, x.rank) for axis in call.numbers("axes", range(x.rank))]
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    by_size = call.has(3) and bool(call.sizes(3))
    scales = None if by_size else [float(one) for one in call.known(2)]
    require(len(call.sizes(3) if by_size else scales or []) == len(axes), "scales do not fit axes")
    kept = [
        at
        for at, axis in enumerate(axes)
        if coordinates == CROPPING
        or (call.sizes(3)[at] != x.shape[axis] if scales is None else scales[at] != 1)
    ]
    before = [x.shape[axes[at]] for at in kept]
    if scales is None:
        sizes = [call.sizes(3)[at] for at in kept]
    else:
        sizes = [_grown(size, scales[at]) for size, at in zip(before, kept, strict=True)]
    regions = None
    if coordinates == CROPPING:
        roi = [float(one) for one in call.known(1)]
        regions = [(roi[at], roi[at + len(axes)]) for at in kept]
    return ops.resize(
        x,
        sizes,
        [axes[at] for at in kept],
        call.text("mode", "nearest"),
        coordinates,
        scales=None if scales is None else [scales[at] for at in kept],
        rounding=call.text("nearest_mode", "round_prefer_floor"),
        cubic_coefficient=call.real("cubic_coeff_a", -0.75),
        antialias=call.flag("antialias"),
        exclude_outside=call.flag("exclude_outside"),
        regions=regions,
        extrapolation=call.real("extrapolation_value", 0.0),
        keep_aspect=call.text("keep_aspect_ratio_policy", "stretch"),
    )


@operator("GridSample")
def grid_sample(call: OperatorCall) -> Tensor:
    """Images read at places between their pixels, channels first."""
    mode = call.text("mode", "linear" if call.opset >= 20 else "bilinear")
    padding, corners = call.text("padding_mode", "zeros"), call.flag("align_corners")
    image, mode = channels_last(call.x(0)), GRID_MODES.get(mode, mode)
    return channels_first(ops.grid_sample(image, call.x(1), mode, padding, corners))


@operator("AffineGrid", since=20)
def affine_grid(call: OperatorCall) -> Tensor:
    """Places in images by a matrix for each image, the last dimension of images first."""
    call.decide(1)
    theta, sizes = call.x(0), call.sizes(1)[2:]
    count = len(sizes)
    require(count in {2, 3}, f"images of {count} dimensions")
    fits = theta.rank == 3 and [*theta.shape[1:]] == [count, count + 1]
    require(fits, f"matrices of {theta.type} for images of {count} dimensions")
    corners = call.flag("align_corners")
    numbers = [_between(size, theta.dtype, corners=corners) for size in sizes]
    spread = [
        ops.broadcast_to(ops.reshape(one, [-1, *[1] * (count - 1 - axis)]), sizes)
        for axis, one in enumerate(numbers)
    ]
    ones = ops.broadcast_to(ops.constant(1.0, theta.dtype), sizes)
    places = ops.reshape(ops.stack([*spread[::-1], ones], -1), [-1, count + 1])
    moved = ops.matmul(places, ops.transpose(theta, 1, 2))
    return ops.reshape(moved, [theta.shape[0], *sizes, count])


def _between(size: Size, dtype: DType, *, corners: bool) -> Tensor:
    """The middles of as many parts of -1 to 1; with ``corners`` both ends and what is between."""
    require(not corners or size != 1, "corners of a single pixel are aligned")
    places = ops.cast(ops.range(0, size, dtype=DType.int64), dtype)
    if corners:
        last = ops.cast(as_tensor(sizes_of([size_of(polynomial(size) - polynomial(1))])), dtype)
        return places * 2.0 / last - 1.0
    return (places * 2.0 + 1.0) / ops.cast(as_tensor(sizes_of([size])), dtype) - 1.0
