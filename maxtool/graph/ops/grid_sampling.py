"""Images read at places that a grid says, between their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from maxtool.dtype import DType
from maxtool.graph.ops.comparison import logical_and, where
from maxtool.graph.ops.elementwise import abs as magnitude
from maxtool.graph.ops.elementwise import cast, clamp, floor, minimum, mod
from maxtool.graph.ops.elementwise import round as to_even
from maxtool.graph.ops.gathering import gather_nd
from maxtool.graph.ops.joining import stack
from maxtool.graph.ops.layout import unsqueeze
from maxtool.graph.ops.operation_table import as_tensor
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor, TensorLike

MODES = ("linear", "nearest", "cubic")
PADDING = ("zeros", "border", "reflection")

# The derivative of Keys's kernel at distance 1, as in PyTorch and ONNX.
_CUBIC = -0.75


@dataclass(frozen=True, slots=True)
class _Tap:
    """A pixel along one dimension: its place, its weight and whether it is inside, for each."""

    place: Tensor
    weight: Tensor | None
    inside: Tensor | None


@dataclass(frozen=True, slots=True)
class _Axis:
    """One dimension of an image that is sampled."""

    size: int
    padding: str
    align_corners: bool

    def pixels(self, at: Tensor) -> Tensor:
        """Return coordinates from -1 to 1 as pixels."""
        if self.align_corners:
            return (at + 1.0) * (0.5 * (self.size - 1))
        return (at + 1.0) * (0.5 * self.size) - 0.5

    @property
    def low(self) -> float:
        """The edge of the image; the other one is as far behind its last pixel."""
        return 0.0 if self.align_corners else -0.5

    def within(self, at: Tensor) -> Tensor:
        """Return coordinates of pixels, unless padding is zeros."""
        if self.padding == "zeros":
            return at
        inside = self._reflected(at) if self.padding == "reflection" else at
        return clamp(inside, 0.0, float(self.size - 1))

    def _reflected(self, at: Tensor) -> Tensor:
        """Reflect at the centres of the outer pixels, or at their edges."""
        span = self.size - 1 if self.align_corners else self.size
        if span == 0:
            return at * 0.0
        distance = mod(magnitude(at - self.low), 2.0 * span)
        return minimum(distance, 2.0 * span - distance) + self.low

    def tap(self, at: Tensor, weight: Tensor | None) -> _Tap:
        """Return the pixel at a whole coordinate."""
        inside = None
        if self.padding == "zeros":
            inside = logical_and(at >= 0.0, at <= float(self.size - 1))
        place = clamp(at, 0.0, float(self.size - 1))
        return _Tap(cast(place, DType.int64), weight, inside)

    def taps(self, at: Tensor, mode: str) -> list[_Tap]:
        """Return the pixels around coordinates, with their weights."""
        if mode == "nearest":
            return [self.tap(to_even(self.within(at)), None)]
        # Of a cubic each pixel is brought inside by itself, as PyTorch and onnxruntime have it.
        at = self.within(at) if mode == "linear" else at
        first = floor(at)
        part = at - first
        if mode == "linear":
            return [self.tap(first, 1.0 - part), self.tap(first + 1.0, part)]
        weights = [_far(part + 1.0), _near(part), _near(1.0 - part), _far(2.0 - part)]
        return [
            self.tap(self.within(first + float(offset)), weight)
            for offset, weight in enumerate(weights, -1)
        ]


def _near(x: Tensor) -> Tensor:
    """Return Keys's kernel at distances up to 1."""
    return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1.0


def _far(x: Tensor) -> Tensor:
    """Return Keys's kernel at distances from 1 to 2."""
    return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC


def grid_sample(
    x: TensorLike,
    grid: TensorLike,
    mode: str = "linear",
    padding: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Images at the places of a grid, as ONNX's ``GridSample`` (operator set 20) computes them.

    Args:
        x: ``[batch, sizes..., channels]``, floats, with known sizes above 0.
        grid: ``[batch, output sizes..., dimensions]`` of the type of ``x``: coordinates from -1 to
            1, that of the last dimension first.
        mode: linear, nearest (of two the even one) or cubic.
        padding: What is outside: zeros, the border, or the image reflected there.
        align_corners: Whether -1 and 1 are the centres of the outer pixels, not their edges.

    Returns:
        ``[batch, output sizes..., channels]``. Types of 16 bits are computed in float32.

    Raises:
        ValueError: If the operands do not fit, or an option is none of these.
    """
    image, points = as_tensor(x), as_tensor(grid)
    _require_fitting(image, points)
    require(mode in MODES, f"grid_sample: mode is one of {', '.join(MODES)}, not {mode!r}")
    require(padding in PADDING, f"grid_sample: padding is one of {', '.join(PADDING)}")
    wide = DType.float64 if image.dtype is DType.float64 else DType.float32
    spatial = image.rank - 2
    pixels, where_to = cast(image, wide), cast(points, wide)
    taps = []
    for number, dim in enumerate(image.shape[1:-1]):
        axis = _Axis(int(dim), padding, align_corners)
        taps.append(axis.taps(axis.pixels(where_to[..., spatial - 1 - number]), mode))
    parts = [_part(pixels, corner) for corner in product(*taps)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return cast(total, image.dtype)


def _part(x: Tensor, corner: Sequence[_Tap]) -> Tensor:
    """The pixels of one corner, weighted; zeros for those outside."""
    taken = gather_nd(x, stack([tap.place for tap in corner], -1), batch_dims=1)
    for tap in corner:
        if tap.inside is not None:
            taken = where(unsqueeze(tap.inside, -1), taken, 0.0)
    for tap in corner:
        if tap.weight is not None:
            taken = taken * unsqueeze(tap.weight, -1)
    return taken


def _require_fitting(image: Tensor, points: Tensor) -> None:
    listed = f"grid_sample({image.type}, {points.type})"
    shaped = image.rank > 2 and image.rank == points.rank
    require(shaped, f"{listed}: [batch, sizes..., channels] and [batch, sizes..., dimensions]")
    known = all(dim.is_static and dim != 0 for dim in image.shape[1:-1])
    require(known, f"{listed}: the sizes of the image are known, and not 0")
    require(points.shape[-1] == image.rank - 2, f"{listed}: a point has a number for each size")
    require(image.dtype.is_float() and points.dtype.is_float(), f"{listed}: operands are floats")
