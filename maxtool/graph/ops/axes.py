"""Dimensions as they are named in calls: by number, from the first or (negative) from the last."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

from maxtool.graph.dim import Shape
from maxtool.graph.tensor import Axes, Tensor


def axis_of(op: str, x: Tensor, axis: SupportsIndex, *, more: int = 0) -> int:
    """A dimension of ``x``, as ``op`` was asked for it, counted from the first.

    One of the result is meant where that has ``more`` dimensions.
    """
    number, rank = index(axis), x.rank + more
    if not -rank <= number < rank:
        raise ValueError(f"{op}({x.type}): there is no dimension {number} in {rank}")
    return number % rank


def differ_only(axis: int, first: Shape, second: Shape) -> bool:
    """Return whether two shapes agree in all dimensions but perhaps one."""
    pairs = enumerate(zip(first, second, strict=False))
    others = (left == right for number, (left, right) in pairs if number != axis)
    return first.rank == second.rank and all(others)


def axes_of(x: Tensor, axis: Axes) -> tuple[int, ...]:
    """Dimensions counted from the first, ascending; what is no dimension of it stays as it is."""
    if axis is None:
        return tuple(range(x.rank))
    numbers = map(index, axis if isinstance(axis, Sequence) else (axis,))
    return tuple(sorted(n + x.rank if -x.rank <= n < 0 else n for n in numbers))
