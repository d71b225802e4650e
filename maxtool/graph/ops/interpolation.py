"""Tables of interpolation along one dimension: which elements make a result, and their weights.

The formulas are those of ONNX's ``Resize`` (operator set 19). Cubic weights are Keys's (Cubic
convolution interpolation for digital image processing, 1981).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Resizing:
    """A dimension that is resized.

    Attributes:
        before: Its elements.
        after: The elements of the result.
        scale: How many times as large that is meant to be: ``after`` may be rounded.
        region: The part that is read where coordinates are ``tf_crop_and_resize``, of 0 to 1.
    """

    before: int
    after: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def meant(self) -> float:
        """The size of the result before it is rounded."""
        return self.scale * self.before


@dataclass(frozen=True, slots=True)
class Taps:
    """Elements ``[after, taps]`` that make each element of a result, and their weights."""

    places: Integers
    weights: Floats


def _align_corners(size: Resizing, at: Floats) -> Floats:
    return at * (size.before - 1) / (size.meant - 1) if size.meant != 1 else 0 * at


def _half_pixel(size: Resizing, at: Floats) -> Floats:
    return (at + 0.5) / size.scale - 0.5


def _half_pixel_symmetric(size: Resizing, at: Floats) -> Floats:
    return size.before / 2 * (1 - size.after / size.meant) + _half_pixel(size, at)


def _pytorch_half_pixel(size: Resizing, at: Floats) -> Floats:
    return _half_pixel(size, at) if size.after > 1 else 0 * at


def _crop_and_resize(size: Resizing, at: Floats) -> Floats:
    start, end = size.region
    share = at / (size.meant - 1) if size.meant != 1 else 0 * at + 0.5
    return (start + share * (end - start)) * (size.before - 1)


# Where an element of a result lies in the input.
COORDINATES: Mapping[str, Callable[[Resizing, Floats], Floats]] = {
    "align_corners": _align_corners,
    "asymmetric": lambda size, at: at / size.scale,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_crop_and_resize": _crop_and_resize,
}

# Which of two neighbours is nearest.
ROUNDING: Mapping[str, Callable[[Floats], Floats]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
}

# How far a kernel of interpolation reaches.
REACH = {"linear": 1, "cubic": 2}


def coordinates(size: Resizing, mode: str) -> Floats:
    """Return where each element of the result lies in the input."""
    return COORDINATES[mode](size, np.arange(size.after, dtype=np.float64))


def nearest(size: Resizing, at: Floats, rounding: str) -> Integers:
    """Return the nearest element of each coordinate."""
    return ROUNDING[rounding](at).clip(0, size.before - 1).astype(np.int64)


def weighted(
    size: Resizing, at: Floats, mode: str, cubic: float, *, antialias: bool, exclude_outside: bool
) -> Taps:
    """Return the elements around each coordinate with their weights, whose sum is 1.

    With ``antialias`` a kernel is as much wider as the result is smaller. What is outside counts as
    the nearest end, or not at all if ``exclude_outside``.
    """
    narrowing = min(size.scale, 1.0) if antialias else 1.0
    first = int(np.floor(-REACH[mode] / narrowing)) + 1
    places = np.floor(at)[:, None] + np.arange(first, 2 - first)
    distances = np.abs(narrowing * (places - at[:, None]))
    weights = 1 - distances.clip(0, 1) if mode == "linear" else cubic_weights(distances, cubic)
    if exclude_outside:
        weights = np.where((places >= 0) & (places < size.before), weights, 0)
    sums = weights.sum(1, keepdims=True)
    inside = places.clip(0, size.before - 1).astype(np.int64)
    return Taps(inside, weights / np.where(sums == 0, 1, sums))


def cubic_weights(distances: Floats, a: float) -> Floats:
    """Return Keys's kernel with the coefficient ``a`` at distances, which are not negative."""
    x = distances
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def matrix(size: Resizing, taps: Taps) -> Floats:
    """Return the weights as a matrix ``[after, before]``."""
    result = np.zeros((size.after, size.before))
    np.add.at(result, (np.arange(size.after)[:, None], taps.places), taps.weights)
    return result
