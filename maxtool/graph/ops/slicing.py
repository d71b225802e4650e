"""Ranges of a dimension: ``start:stop:step`` of a size that is known, or only named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index as whole
from typing import TypeAlias

from maxtool.graph.dim import Dim
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import BufferType, TensorType


@dataclass(frozen=True, slots=True)
class IndexRange:
    """``size`` elements of a dimension from ``start`` on, ``step`` (perhaps negative) apart.

    All of them exist where the dimension has the size ``least``.
    """

    start: Dim
    step: int
    size: Dim
    least: int = 0

    @classmethod
    def all(cls, dim: Dim) -> IndexRange:
        """Every element of a dimension."""
        return cls(Dim(0), 1, dim)

    def window(self, sizes: Mapping[str, int]) -> slice:
        """The range as NumPy takes it, where dimensions have these sizes."""
        start, size = self.start.size(sizes), self.size.size(sizes)
        stop = start + self.step * size
        return slice(start, stop if stop >= 0 else None, self.step) if size else slice(0)


@rule("slice")
def _infer_slice(tensor_type: TensorType, ranges: tuple[IndexRange, ...]) -> tuple[TensorType, ...]:
    fits = len(ranges) == tensor_type.rank
    require(fits, f"{len(ranges)} ranges for {tensor_type.rank} dimensions")
    return (TensorType(tensor_type.dtype, [range_.size for range_ in ranges], tensor_type.device),)


def cut(x: Tensor, ranges: Sequence[IndexRange]) -> Tensor:
    """The elements of ``x`` in a range for each dimension; ``x`` itself if these are all.

    Of a buffer they are copied all the same: it may be overwritten later.
    """
    everything = [*map(IndexRange.all, x.shape)]
    if list(ranges) == everything and not isinstance(x.type, BufferType):
        return x
    return apply("slice", x, ranges=tuple(ranges))[0]


def cut_along(x: Tensor, axis: int, start: Dim, size: Dim) -> Tensor:
    """``size`` elements of one dimension from ``start`` on."""
    ranges = [*map(IndexRange.all, x.shape)]
    ranges[axis] = IndexRange(start, 1, size)
    return cut(x, ranges)


def element(dim: Dim, number: int) -> IndexRange:
    """One element, by its number from the first or (negative) the last, if it can exist."""
    if dim.is_static and not -int(dim) <= number < int(dim):
        raise IndexError(f"index {number} is out of range for a dimension of {dim}")
    start = dim + number if number < 0 else Dim(number)
    return IndexRange(start, 1, Dim(1), -number if number < 0 else number + 1)


def part(dim: Dim, entry: slice) -> IndexRange:
    """Return the range that a slice selects.

    Of a size that is only named, a slice means what it means for sizes that reach its ends:
    ``x[:3]`` has 3 elements, and a call with fewer is refused. Where that does not say how many
    elements there are, it is a ``ValueError``.
    """
    bounds = [
        None if bound is None else whole(bound) for bound in (entry.start, entry.stop, entry.step)
    ]
    if not dim.is_static:
        return _open_part(dim, *bounds)
    numbers = range(int(dim))[slice(*bounds)]
    return IndexRange(Dim(numbers.start if numbers else 0), numbers.step, Dim(len(numbers)))


# A bound of a dimension: a number, or with True the size of the dimension and a number.
Bound: TypeAlias = "tuple[bool, int]"


def _open_part(dim: Dim, start: int | None, stop: int | None, step: int | None) -> IndexRange:
    by = 1 if step is None else step
    if by == 0:
        raise ValueError("a slice has a step other than 0")
    first = _bound(start, (by < 0, -1 if by < 0 else 0))
    end = _bound(stop, (by > 0, 0 if by > 0 else -1))
    low, high = (first, end) if by > 0 else (end, first)
    size, least = _distance(dim, low, high, abs(by))
    reached = [
        -bound if bound < 0 else bound + (by < 0) for bound in (start, stop) if bound is not None
    ]
    position = dim + first[1] if first[0] else Dim(max(first[1], 0))
    return IndexRange(Dim(0) if size == 0 else position, by, size, max([least, *reached]))


def _bound(bound: int | None, default: Bound) -> Bound:
    return default if bound is None else (bound < 0, bound)


def _distance(dim: Dim, low: Bound, high: Bound, step: int) -> tuple[Dim, int]:
    """Return the number of steps between two bounds, and the least size that has them."""
    number = high[1] - low[1]
    if low[0] == high[0]:
        return Dim(max(0, -(-number // step))), 0
    if low[0]:
        raise ValueError(f"how many elements it has depends on the order of its ends in {dim}")
    return (dim + (number + step - 1)) // step, max(0, -number)
