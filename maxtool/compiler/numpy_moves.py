"""Operations that move elements of the host and compute none: NumPy copies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from maxtool.graph.dim import Shape
from maxtool.graph.ops.slicing import IndexRange

Array: TypeAlias = np.ndarray[Any, Any]
# From arrays to the result, which may be a view of one.
Move: TypeAlias = Callable[..., Array]


def _broadcast_to(shape: Shape) -> Move:
    sizes = shape.static()
    return lambda array: np.broadcast_to(array, sizes)


def _concat(axis: int) -> Move:
    return lambda *arrays: np.concatenate(arrays, axis)


def _pad(before: Sequence[int], after: Sequence[int]) -> Move:
    def move(array: Array, value: Array) -> Array:
        ends = zip(before, array.shape, after, strict=True)
        padded = np.full([sum(sizes) for sizes in ends], value, array.dtype)
        inside = zip(before, array.shape, strict=True)
        padded[tuple(slice(low, low + size) for low, size in inside)] = array
        return padded

    return move


def _permute(dims: Sequence[int]) -> Move:
    return lambda array: array.transpose(dims)


def _reshape(shape: Shape) -> Move:
    sizes = shape.static()
    return lambda array: array.reshape(sizes)


def _slice(ranges: Sequence[IndexRange]) -> Move:
    windows = tuple(each.window({}) for each in ranges)
    return lambda array: array[windows]


# What makes the move of an operation, from its attributes.
MOVES: dict[str, Callable[..., Move]] = {
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "pad": _pad,
    "permute": _permute,
    "reshape": _reshape,
    "slice": _slice,
}
