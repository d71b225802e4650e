"""Images of another size, one dimension after the other.

Tables of places and weights are computed at once where sizes are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, DimLike
from maxtool.graph.ops import interpolation
from maxtool.graph.ops.axes import axis_of
from maxtool.graph.ops.comparison import where
from maxtool.graph.ops.elementwise import add, cast, mul
from maxtool.graph.ops.gathering import gather
from maxtool.graph.ops.interpolation import Resizing, Taps
from maxtool.graph.ops.layout import transpose
from maxtool.graph.ops.neural import matmul
from maxtool.graph.ops.open_resizing import OpenResizing, resized
from maxtool.graph.ops.operation_table import as_tensor
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor, TensorLike

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool]]

MODES = ("nearest", *interpolation.REACH)

# How the sizes of several dimensions become one scale that keeps the proportions.
_POLICIES = {"not_larger": min, "not_smaller": max}

# Weighted elements are added up one by one, more of them by a product with a matrix.
_FEW = 4


def resize(
    x: TensorLike,
    sizes: Sequence[DimLike],
    axes: Sequence[int],
    mode: str = "linear",
    coordinates: str = "half_pixel",
    *,
    scales: Sequence[float] | None = None,
    rounding: str = "round_prefer_floor",
    cubic_coefficient: float = -0.75,
    antialias: bool = False,
    exclude_outside: bool = False,
    regions: Sequence[tuple[float, float]] | None = None,
    extrapolation: float = 0.0,
    keep_aspect: str = "stretch",
) -> Tensor:
    """``x`` with other sizes of some dimensions, interpolated as ONNX's ``Resize`` does.

    Args:
        x: Floats, or anything if ``mode`` is nearest.
        sizes: The new sizes, of each of ``axes``.
        axes: Which dimensions change.
        mode: nearest, linear or cubic.
        coordinates: Where an element of the result lies in ``x``: half_pixel, align_corners,
            asymmetric, half_pixel_symmetric, pytorch_half_pixel, or tf_crop_and_resize.
        scales: How many times as large a dimension is meant to be; ``size / size before`` if not
            given. It decides about coordinates, and the sizes may have been rounded from it.
        rounding: Of nearest: round_prefer_floor, round_prefer_ceil, floor or ceil.
        cubic_coefficient: Of cubic, the derivative at distance 1.
        antialias: Whether kernels of linear and cubic get wider where the result is smaller.
        exclude_outside: Whether weights of what is outside are 0, rather than those of the ends.
        regions: Of tf_crop_and_resize, the part of each dimension that is read, of 0 to 1.
        extrapolation: Of tf_crop_and_resize, what is written for places outside ``x``.
        keep_aspect: stretch, or not_larger or not_smaller than ``sizes``: with one scale for all.

    Raises:
        ValueError: If an option is none of these, or sizes do not fit.
    """
    image = as_tensor(x)
    places = [axis_of("resize", image, axis) for axis in axes]
    _require_known(mode, coordinates, rounding, keep_aspect)
    opened = {
        axis: OpenResizing(image.shape[axis], Dim(size), None if scales is None else scales[at])
        for at, (axis, size) in enumerate(zip(places, sizes, strict=True))
        if not (image.shape[axis].is_static and Dim(size).is_static)
    }
    plain = not antialias and keep_aspect not in _POLICIES
    require(plain or not opened, "resize: a named size is not antialiased, nor keeps proportions")
    closed = [at for at, axis in enumerate(places) if axis not in opened]
    dimensions = _dimensions(
        image,
        [int(Dim(sizes[at])) for at in closed],
        [places[at] for at in closed],
        None if scales is None else [scales[at] for at in closed],
        None if regions is None else [regions[at] for at in closed],
        keep_aspect,
    )
    wide = DType.float64 if image.dtype is DType.float64 else DType.float32
    result = image if mode == "nearest" else cast(image, wide)
    require(mode == "nearest" or image.dtype.is_float(), f"{mode} is of floats; cast the others")
    outside: dict[int, Mask] = {}
    for axis, size in dimensions.items():
        at = interpolation.coordinates(size, coordinates)
        outside[axis] = (at < 0) | (at > size.before - 1)
        if mode == "nearest":
            result = gather(result, interpolation.nearest(size, at, rounding), axis)
            continue
        options = {"antialias": antialias, "exclude_outside": exclude_outside}
        taps = interpolation.weighted(size, at, mode, cubic_coefficient, **options)
        result = _interpolated(result, axis, size, taps)
    for axis, named in opened.items():
        result = resized(
            result, axis, named, mode, coordinates, rounding, cubic_coefficient,
            exclude_outside=exclude_outside,
        )  # fmt: skip
    if coordinates == "tf_crop_and_resize":
        for axis, mask in outside.items():
            result = _replaced(result, axis, mask, extrapolation)
    return result if result.dtype is image.dtype else cast(result, image.dtype)


def _require_known(mode: str, coordinates: str, rounding: str, keep_aspect: str) -> None:
    given = {
        mode: MODES,
        coordinates: interpolation.COORDINATES,
        rounding: interpolation.ROUNDING,
        keep_aspect: ("stretch", *_POLICIES),
    }
    for option, known in given.items():
        require(option in known, f"resize: {option!r} is none of {', '.join(known)}")


def _dimensions(
    x: Tensor,
    sizes: Sequence[int],
    axes: Sequence[int],
    scales: Sequence[float] | None,
    regions: Sequence[tuple[float, float]] | None,
    keep_aspect: str,
) -> Mapping[int, Resizing]:
    """The dimensions that change, by their numbers."""
    require(len({*axes}) == len(axes) == len(sizes), "resize: a size for each of different axes")
    known = all(x.shape[axis].is_static and x.shape[axis] != 0 for axis in axes)
    require(known, f"resize: the dimensions {list(axes)} of {x.type} are known, and not 0")
    before = [int(x.shape[axis]) for axis in axes]
    after = [int(size) for size in sizes]
    factors = scales or [new / old for new, old in zip(after, before, strict=True)]
    if keep_aspect in _POLICIES and axes:
        factors = [_POLICIES[keep_aspect](factors)] * len(axes)
        after = [int(factor * old + 0.5) for factor, old in zip(factors, before, strict=True)]
    require(min(after, default=1) > 0, f"resize: to sizes above 0, not {after}")
    parts = regions or [(0.0, 1.0)] * len(axes)
    rows = zip(axes, before, after, factors, parts, strict=True)
    changed = {axis: Resizing(old, new, by, part) for axis, old, new, by, part in rows}
    return {
        axis: size
        for axis, size in changed.items()
        if (size.scale, size.after, size.region) != (1.0, size.before, (0.0, 1.0))
    }


def _interpolated(x: Tensor, axis: int, size: Resizing, taps: Taps) -> Tensor:
    """``x`` with weighted sums along a dimension."""
    element = x.dtype.to_numpy()
    if taps.places.shape[1] > _FEW:
        weights = interpolation.matrix(size, taps).T.astype(element)
        return transpose(matmul(transpose(x, axis, -1), weights), axis, -1)
    column = (-1, *(1 for _ in range(x.rank - axis - 1)))
    parts = [
        mul(gather(x, places, axis), weights.reshape(column).astype(element))
        for places, weights in zip(taps.places.T, taps.weights.T, strict=True)
    ]
    return reduce(add, parts)


def _replaced(x: Tensor, axis: int, mask: Mask, value: float) -> Tensor:
    """``x`` with a value where a mask along a dimension is True."""
    if not mask.any():
        return x
    column = mask.reshape(-1, *(1 for _ in range(x.rank - axis - 1)))
    return where(column, np.array(value, x.dtype.to_numpy()), x)
