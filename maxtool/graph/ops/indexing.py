"""``x[...]`` as NumPy has it: numbers, slices, ``...``, ``None``, tensors of places, and masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index as whole
from typing import Any, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, Shape
from maxtool.graph.ops.elementwise import broadcast
from maxtool.graph.ops.gathering import gather, gather_nd, require_places
from maxtool.graph.ops.joining import stack
from maxtool.graph.ops.layout import broadcast_to, permute, reshape
from maxtool.graph.ops.operation_table import is_traced
from maxtool.graph.ops.slicing import IndexRange, cut, element, part
from maxtool.graph.tensor import Index, Tensor

# One entry of an index: a new dimension, a range, one element, or places.
Entry: TypeAlias = "slice | int | Tensor | None"


def slice_tensor(x: Tensor, index: Index) -> Tensor:
    """``x[index]``, by NumPy's rules.

    Of a dimension that has only a name, a slice means what it means for sizes that reach its ends:
    ``x[1:]`` has one element less, ``x[:3]`` has 3, and a call with fewer is refused. A mask must
    be known now, for the shape of the result depends on it.

    Args:
        x: Any tensor.
        index: One entry, or a tuple of them: whole numbers, slices with any step, ``...`` once,
            ``None`` for a new dimension, tensors, arrays or lists of whole numbers or of bools.

    Raises:
        IndexError: If there are more entries than dimensions, or a place does not exist.
        TypeError: If an entry is nothing of these.
        ValueError: If a mask is traced, or the size of a slice cannot be said.
    """
    entries = list(_expanded(x, index if isinstance(index, tuple) else (index,)))
    arrays = any(isinstance(entry, Tensor) for entry in entries)
    chosen = cut(x, _ranges(x, entries, arrays))
    if arrays:
        return _at_places(chosen, entries)
    sizes = iter(chosen.shape)
    pairs = [(entry, 1 if entry is None else next(sizes)) for entry in entries]
    shape = Shape([size for entry, size in pairs if not isinstance(entry, int)])
    return chosen if shape == chosen.shape else reshape(chosen, shape)


def _expanded(x: Tensor, index: Sequence[Any]) -> Iterator[Entry]:
    """An entry for each dimension, and those that are new."""
    entries = [_entry(x, given) for given in index]
    used = sum(_depth(entry) for entry in entries)
    if used > x.rank:
        raise IndexError(f"slice({x.type}): {used} indices for a tensor of rank {x.rank}")
    if sum(one is Ellipsis for one in entries) > 1:
        raise IndexError(f"slice({x.type}): an index has ... once")
    if not any(one is Ellipsis for one in entries):
        entries.append(Ellipsis)
    axis = 0
    for one in entries:
        if one is Ellipsis:
            yield from [slice(None)] * (x.rank - used)
        elif isinstance(one, Tensor) and one.dtype is DType.bool:
            yield from _chosen(x, axis, one)
        else:
            yield one
        axis += x.rank - used if one is Ellipsis else _depth(one)


def _depth(entry: Any) -> int:  # noqa: ANN401 - an entry, or an ellipsis
    """Return the number of dimensions of the tensor that an entry covers."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.rank if isinstance(entry, Tensor) and entry.dtype is DType.bool else 1


def _entry(x: Tensor, entry: Any) -> Any:  # noqa: ANN401 - whatever is in an index
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if isinstance(entry, Tensor | np.ndarray | list):
        return _places(x, entry if isinstance(entry, Tensor) else _array(x, entry))
    try:
        if isinstance(entry, bool | np.bool_):
            raise TypeError
        return whole(entry)
    except TypeError:
        actual = type(entry).__name__
        raise TypeError(
            f"slice: an index is a number, a slice, ..., None, or a tensor of places, not {actual}"
        ) from None


def _array(x: Tensor, entry: Any) -> Tensor:  # noqa: ANN401 - an array or a list
    array = np.asarray(entry)
    return Tensor(array if array.size else array.astype(np.int64), device=x.device)


def _places(x: Tensor, tensor: Tensor) -> Tensor:
    if tensor.dtype is not DType.bool and not tensor.dtype.is_integral():
        raise TypeError(
            f"slice: places are whole numbers, and masks bool, not {tensor.dtype.value}"
        )
    if tensor.dtype is DType.bool and is_traced(tensor):
        raise ValueError(
            f"slice({x.type}, {tensor.type}): how many elements a mask chooses is not known while"
            " tracing; use where, or a mask that is known"
        )
    return tensor


def _chosen(x: Tensor, axis: int, mask: Tensor) -> Iterator[Tensor]:
    """The places where a mask is true, in each of the dimensions that it is for."""
    sizes = x.shape[axis : axis + mask.rank]
    if sizes != mask.shape:
        raise IndexError(f"slice({x.type}): a mask of {mask.shape} for dimensions of {sizes}")
    return (Tensor(places, device=x.device) for places in mask.to_numpy().nonzero())


def _ranges(x: Tensor, entries: Sequence[Entry], arrays: bool) -> list[IndexRange]:
    own = [entry for entry in entries if entry is not None]
    try:
        return [_range(dim, entry, arrays) for dim, entry in zip(x.shape, own, strict=True)]
    except (IndexError, ValueError) as error:
        raise type(error)(f"slice({x.type}): {error}") from None


def _range(dim: Dim, entry: Entry, arrays: bool) -> IndexRange:
    """Return the range that an entry selects; next to index arrays, integers are arrays too."""
    if isinstance(entry, slice):
        return part(dim, entry)
    if isinstance(entry, int) and not arrays:
        return element(dim, entry)
    return IndexRange.all(dim)


def _at_places(x: Tensor, entries: Sequence[Entry]) -> Tensor:
    """NumPy's rule: places are read together, and stand where they stood if that is one place."""
    sizes = iter(x.shape)
    x = reshape(x, [1 if entry is None else next(sizes) for entry in entries])
    axes = [axis for axis, entry in enumerate(entries) if isinstance(entry, int | Tensor)]
    places = [_as_places(x, entries[axis]) for axis in axes]
    for axis, axis_indices in zip(axes, places, strict=True):
        require_places("slice", axis_indices, [x.shape[axis]])
    adjacent = axes[-1] - axes[0] == len(axes) - 1
    if len(axes) == 1:
        return gather(x, places[0], axes[0])
    others = [axis for axis in range(x.rank) if axis not in axes]
    gathered = gather_nd(permute(x, [*axes, *others]), _joined(places))
    return _moved(gathered, gathered.rank - len(others), axes[0]) if adjacent else gathered


def _as_places(x: Tensor, entry: Entry) -> Tensor:
    if isinstance(entry, Tensor):
        return entry
    return Tensor(np.array(entry, np.int64), device=x.device)


def _joined(places: Sequence[Tensor]) -> Tensor:
    """Places in several dimensions as the rows of one tensor."""
    shape = Shape(())
    for one in places:
        shape = broadcast(shape, one.shape)
    wide = [index if index.dtype is DType.int64 else index.cast(DType.int64) for index in places]
    return stack([broadcast_to(one, shape) for one in wide], axis=-1)


def _moved(x: Tensor, count: int, to: int) -> Tensor:
    """The first ``count`` dimensions after ``to`` of the others."""
    rest = range(count, x.rank)
    return permute(x, [*rest[:to], *range(count), *rest[to:]])
