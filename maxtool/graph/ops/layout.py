"""Operations that move elements and change none."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as whole
from typing import SupportsIndex

from maxtool.graph.dim import Dim, DimLike, Shape
from maxtool.graph.ops.table import apply, define
from maxtool.graph.tensor import Index, Tensor, TensorLike
from maxtool.graph.type import TensorType


def _infer_reshape(kind: TensorType, shape: Shape) -> tuple[TensorType, ...]:
    if kind.shape.volume() != shape.volume():
        raise ValueError(f"{kind.shape} and {shape} have different numbers of elements")
    return (TensorType(kind.dtype, shape, kind.device),)


def _infer_permute(kind: TensorType, dims: tuple[int, ...]) -> tuple[TensorType, ...]:
    if sorted(dims) != list(range(kind.rank)):
        raise ValueError(f"{list(dims)} does not name each of {kind.rank} dimensions once")
    return (TensorType(kind.dtype, [kind.shape[dim] for dim in dims], kind.device),)


def _infer_slice(
    kind: TensorType, starts: tuple[int, ...], stops: tuple[int | None, ...], keep: tuple[bool, ...]
) -> tuple[TensorType, ...]:
    ranges = zip(kind.shape, starts, stops, keep, strict=True)
    sizes = [_slice_size(dim, start, stop) for dim, start, stop, kept in ranges if kept]
    return (TensorType(kind.dtype, sizes, kind.device),)


def _slice_size(dim: Dim, start: int, stop: int | None) -> Dim:
    return dim if stop is None else Dim(stop - start)


define("reshape", _infer_reshape)
define("permute", _infer_permute)
define("slice", _infer_slice)


def reshape(x: TensorLike, shape: Sequence[DimLike]) -> Tensor:
    """The elements of ``x`` in another shape; symbolic dimensions must appear in both."""
    return apply("reshape", x, shape=Shape(shape))[0]


def permute(x: TensorLike, dims: Sequence[int]) -> Tensor:
    """The dimensions of ``x`` in the order ``dims``; negative ones count from the last."""
    tensor = x if isinstance(x, Tensor) else Tensor(x)
    order = tuple(_from_first(dim, tensor.rank) for dim in dims)
    return apply("permute", tensor, dims=order)[0]


def transpose(x: TensorLike, axis: int, other: int) -> Tensor:
    """Two dimensions of ``x`` swapped; negative ones count from the last.

    Raises:
        ValueError: If there is no such dimension.
    """
    tensor = x if isinstance(x, Tensor) else Tensor(x)
    first, second = _from_first(axis, tensor.rank), _from_first(other, tensor.rank)
    swapped = {first: second, second: first}
    if not all(0 <= dim < tensor.rank for dim in swapped):
        raise ValueError(f"transpose({tensor.type}): there are no dimensions {axis} and {other}")
    return permute(tensor, [swapped.get(dim, dim) for dim in range(tensor.rank)])


def _from_first(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def slice_tensor(x: Tensor, index: Index) -> Tensor:
    """``x[index]`` for numbers and slices of step 1.

    A number from the end (``x[:, -1]``) works on a symbolic dimension too; a proper slice needs a
    size known now.

    Raises:
        IndexError: If there are more indices than dimensions, or a number is out of range.
        TypeError: If an index is neither a number nor a slice.
        ValueError: If a slice has a step, or cuts a symbolic dimension.
    """
    entries = index if isinstance(index, tuple) else (index,)
    if len(entries) > x.rank:
        raise IndexError(f"{len(entries)} indices for a tensor of rank {x.rank}")
    entries = entries + (slice(None),) * (x.rank - len(entries))
    ranges = [_range(dim, entry) for dim, entry in zip(x.shape, entries, strict=True)]
    starts, stops = tuple(start for start, _ in ranges), tuple(stop for _, stop in ranges)
    keep = tuple(isinstance(entry, slice) for entry in entries)
    return apply("slice", x, starts=starts, stops=stops, keep=keep)[0]


def _range(dim: Dim, entry: SupportsIndex | slice) -> tuple[int, int | None]:
    """First element and end; a negative first counts from the end, an end of None is all of it."""
    if not isinstance(entry, slice):
        return _place(dim, entry)
    if entry == slice(None):
        return 0, None
    if entry.step not in (None, 1) or not dim.is_static:
        raise ValueError("slices need step 1 and a dimension whose size is known")
    start, stop, _ = entry.indices(int(dim))
    return start, max(stop, start)


def _place(dim: Dim, entry: SupportsIndex) -> tuple[int, int]:
    try:
        number = whole(entry)
    except TypeError:
        kind = type(entry).__name__
        raise TypeError(f"slice: an index is a number or a slice, not {kind}") from None
    if not dim.is_static:
        return number, number + 1
    if not -int(dim) <= number < int(dim):
        raise IndexError(f"index {number} is out of range for a dimension of {dim}")
    return number % int(dim), number % int(dim) + 1
