"""Elements that are moved, repeated or made from sizes, and not computed.

Negative indices count from the last element. An index outside is read at the nearest end, and what
would be written there is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxtool.dtype import DType
from maxtool.parity.array_types import Array, Definitions


def _from_first(indices: Array, size: int) -> Array:
    wide = indices.astype(np.int64)
    return np.where(wide < 0, wide + size, wide)


def _gather(x: Array, indices: Array, axis: int) -> Array:
    nearest = _from_first(indices, x.shape[axis]).clip(0, x.shape[axis] - 1)
    return x.take(nearest, axis)


def _gather_nd(x: Array, indices: Array, batch: int) -> Array:
    depth = indices.shape[-1]
    sizes = x.shape[batch : batch + depth]
    columns = np.moveaxis(indices, -1, 0)
    nearest = [
        _from_first(column, size).clip(0, size - 1)
        for column, size in zip(columns, sizes, strict=True)
    ]
    rank = nearest[0].ndim
    own = [
        np.arange(size).reshape([-1 if at == axis else 1 for at in range(rank)])
        for axis, size in enumerate(x.shape[:batch])
    ]
    return x[(*own, *nearest)]


def _scatter(x: Array, updates: Array, indices: Array, axis: int) -> Array:
    """Replace elements one after the other, so that of several the last is left."""
    result = x.copy()
    for place, target in _targets(x, indices, axis):
        result[target] = updates[place]
    return result


def _scatter_add(x: Array, updates: Array, indices: Array, axis: int) -> Array:
    result = x.astype(np.float64) if x.dtype.kind == "f" else x.copy()
    for place, target in _targets(x, indices, axis):
        result[target] += updates[place]
    return result


def _targets(
    x: Array, indices: Array, axis: int
) -> Sequence[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield, for each index in order, its own position and the position in ``x``."""
    numbers = _from_first(indices, x.shape[axis])
    return [
        (place, (*place[:axis], int(number), *place[axis + 1 :]))
        for place, number in np.ndenumerate(numbers)
        if 0 <= number < x.shape[axis]
    ]


def _scatter_nd(x: Array, updates: Array, indices: Array) -> Array:
    result = x.copy()
    for place in np.ndindex(indices.shape[:-1]):
        sizes = x.shape[: indices.shape[-1]]
        pairs = zip(indices[place].tolist(), sizes, strict=True)
        target = tuple(index + size if index < 0 else index for index, size in pairs)
        if all(0 <= index < size for index, size in zip(target, sizes, strict=True)):
            result[target] = updates[place]
    return result


def _nonzero(counts: Array, shape: tuple[int, ...], size: int | None) -> Array:  # noqa: ARG001
    """The indices of elements at which a running count rises."""
    chosen = np.diff(counts, prepend=0).reshape(shape)
    return np.argwhere(chosen)


def _pad(x: Array, value: Array, before: tuple[int, ...], after: tuple[int, ...]) -> Array:
    return np.pad(x, list(zip(before, after, strict=True)), constant_values=value)


def _bitcast(x: Array, source: DType, dtype: DType) -> Array:
    """The bits of elements, which are exact in float64, as those of another type."""
    return np.array(x, source.to_numpy(), order="C").view(dtype.to_numpy())


def _range(start: Array, step: Array, size: int) -> Array:
    return start + step * np.arange(size, dtype=start.dtype)


MOVED: Definitions = {
    "bitcast": _bitcast,
    "broadcast_to": np.broadcast_to,
    "counted": lambda count, size: np.arange(int(count)),  # noqa: ARG005
    "concat": lambda *arrays, axis: np.concatenate(arrays, axis),
    "gather": _gather,
    "gather_nd": _gather_nd,
    "nonzero": _nonzero,
    "pad": _pad,
    "permute": lambda x, dims: x.transpose(dims),
    "print": lambda _x, label: (),  # noqa: ARG005 - nothing comes of it
    "range": _range,
    "rebind": lambda x, shape, message: x,  # noqa: ARG005 - every result's shape is checked
    "reshape": np.reshape,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_nd": _scatter_nd,
    "shape_to_tensor": lambda shape, **_: np.array(shape, np.int64),
    "slice": lambda x, ranges: x[ranges],
    "transfer_to": lambda x, device: x,  # noqa: ARG005 - there is one memory
}
