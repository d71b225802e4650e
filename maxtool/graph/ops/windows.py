"""Windows that slide over the spatial dimensions of an image: how many fit, and how they are given.

A line, an image and a volume have one, two and three such dimensions, and are all called images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from maxtool.graph.dim import Dim
from maxtool.graph.ops.require import require
from maxtool.graph.type import TensorType

Sizes: TypeAlias = "int | Sequence[int]"

# The dimensions between the batch and the channels, by how many there are.
SPATIAL = {1: "length", 2: "height, width", 3: "depth, height, width"}


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window, a number for each spatial dimension; of padding two, before and after it."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]

    def require_valid(self) -> None:
        """Raise ValueError unless strides, dilations and padding are such numbers."""
        require(min(*self.stride, *self.dilation) > 0, "strides and dilations are at least 1")
        require(min(self.padding) >= 0, "padding is not negative")

    def counts(self, x: TensorType, *, ceil_mode: bool = False) -> list[Dim]:
        """Return the number of windows that fit along each spatial dimension."""
        self.require_valid()
        return [self._fitting(axis, dim, ceil_mode) for axis, dim in enumerate(x.shape[1:-1])]

    def _fitting(self, axis: int, dim: Dim, ceil_mode: bool) -> Dim:
        before, after = self.padding[2 * axis : 2 * axis + 2]
        reach, stride = self.dilation[axis] * (self.kernel[axis] - 1), self.stride[axis]
        if not dim.is_static:
            beyond = ceil_mode and after + stride > reach + 1
            require(not beyond, f"windows begin in the padding of the symbolic dimension {dim}")
            room = dim + (before + after - reach - 1)
            return (room + (stride - 1 if ceil_mode else 0)) // stride + 1
        starts = int(dim) + before + after - reach - 1
        require(starts >= 0, f"a dimension of {dim} is smaller than a window")
        count = starts // stride + 1
        if ceil_mode and starts % stride and count * stride < int(dim) + before:
            count += 1
        return Dim(count)


def sizes_of(given: Sizes, count: int) -> tuple[int, ...]:
    """``count`` numbers, of which one stands for all."""
    sizes = (given,) * count if isinstance(given, int) else tuple(int(size) for size in given)
    require(len(sizes) == count, f"one number or {count}, not {list(sizes)}")
    return sizes


def padding_of(sizes: Sizes, count: int) -> tuple[int, ...]:
    """(before, after) of each of ``count`` dimensions; one number of a dimension is both."""
    if not isinstance(sizes, int) and len(sizes) == 2 * count:
        return sizes_of(sizes, 2 * count)
    return tuple(one for size in sizes_of(sizes, count) for one in (size, size))
