"""Interpolation along a dimension whose size a call brings: by tables that are computed then.

The formulas are those of ``interpolation.py``, on tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, DimLike
from maxtool.graph.ops import elementwise as e
from maxtool.graph.ops.comparison import equal, greater_equal, less, less_equal, logical_and, where
from maxtool.graph.ops.creation import range as numbers
from maxtool.graph.ops.gathering import gather
from maxtool.graph.ops.interpolation import REACH
from maxtool.graph.ops.layout import reshape
from maxtool.graph.ops.operation_table import as_number
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor

WIDE = DType.float64
Rule: TypeAlias = "Callable[[OpenResizing, Tensor], Tensor]"


@dataclass(frozen=True, slots=True)
class OpenResizing:
    """A dimension that is resized.

    Attributes:
        size: Its elements.
        after: The elements of the result.
        given: How many times as large that is meant to be; None for what the two say.
    """

    size: Dim
    after: Dim
    given: float | None

    @property
    def before(self) -> Tensor:
        """The size as a number."""
        return as_number(self.size, WIDE)

    @property
    def scale(self) -> Tensor:
        """The factor by which the result is meant to be larger."""
        if self.given is not None:
            return Tensor(np.array(self.given))
        return e.div(as_number(self.after, WIDE), self.before)

    @property
    def meant(self) -> Tensor:
        """The size of the result before it is rounded."""
        return e.mul(self.scale, self.before)


def _align_corners(size: OpenResizing, at: Tensor) -> Tensor:
    alone = equal(size.meant, 1.0)
    last = where(alone, 1.0, size.meant - 1.0)
    return where(alone, 0.0, at * (size.before - 1.0) / last)


def _half_pixel(size: OpenResizing, at: Tensor) -> Tensor:
    return (at + 0.5) / size.scale - 0.5


def _pytorch_half_pixel(size: OpenResizing, at: Tensor) -> Tensor:
    return where(equal(as_number(size.after, WIDE), 1.0), 0.0, _half_pixel(size, at))


def _half_pixel_symmetric(size: OpenResizing, at: Tensor) -> Tensor:
    lost = 1.0 - as_number(size.after, WIDE) / size.meant
    return size.before * 0.5 * lost + _half_pixel(size, at)


COORDINATES: Mapping[str, Rule] = {
    "align_corners": _align_corners,
    "asymmetric": lambda size, at: at / size.scale,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
}
ROUNDING: Mapping[str, Callable[[Tensor], Tensor]] = {
    "ceil": e.ceil,
    "floor": e.floor,
    "round_prefer_ceil": lambda at: e.floor(at + 0.5),
    "round_prefer_floor": lambda at: e.ceil(at - 0.5),
}


def resized(
    x: Tensor,
    axis: int,
    size: OpenResizing,
    mode: str,
    coordinates: str,
    rounding: str,
    cubic: float,
    *,
    exclude_outside: bool,
) -> Tensor:
    """``x`` with another size of one dimension."""
    require(coordinates in COORDINATES, f"resize: {coordinates} of a named size")
    at = COORDINATES[coordinates](size, e.cast(numbers(0, size.after), WIDE))
    if mode == "nearest":
        return gather(x, _inside(size, ROUNDING[rounding](at)), axis)
    reach, first = REACH[mode], e.floor(at)
    places = [first + float(tap) for tap in range(1 - reach, 1 + reach)]
    kernel = _linear if mode == "linear" else lambda distance: _cubic(distance, cubic)
    weights = [kernel(e.abs(place - at)) for place in places]
    if exclude_outside:
        weights = [_of_inside(size, *pair) for pair in zip(places, weights, strict=True)]
    total = reduce(e.add, weights)
    shape: list[DimLike] = [size.after, *(1 for _ in range(x.rank - axis - 1))]
    parts = [
        gather(x, _inside(size, place), axis) * reshape(e.cast(weight / total, x.dtype), shape)
        for place, weight in zip(places, weights, strict=True)
    ]
    return reduce(e.add, parts)


def _inside(size: OpenResizing, places: Tensor) -> Tensor:
    """Places as whole numbers, those outside at the nearest end."""
    return e.cast(e.maximum(e.minimum(places, size.before - 1.0), 0.0), DType.int64)


def _of_inside(size: OpenResizing, place: Tensor, weight: Tensor) -> Tensor:
    return where(logical_and(greater_equal(place, 0.0), less(place, size.before)), weight, 0.0)


def _linear(distance: Tensor) -> Tensor:
    return 1.0 - e.minimum(distance, 1.0)


def _cubic(x: Tensor, a: float) -> Tensor:
    """Keys's kernel with the coefficient ``a``."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1.0
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return where(less_equal(x, 1.0), near, where(less(x, 2.0), far, 0.0))
