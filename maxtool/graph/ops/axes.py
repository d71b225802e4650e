"""Dimensions as they are named in calls: by number, from the first or (negative) from the last."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from maxtool.graph.tensor import Tensor


def axis_of(op: str, x: Tensor, axis: SupportsIndex, *, more: int = 0) -> int:
    """A dimension counted from the first.

    Args:
        op: The operation, for the message.
        x: The tensor whose dimension is meant.
        axis: Its number.
        more: How many dimensions the result has more than ``x``, if one of the result is meant.

    Raises:
        ValueError: If there is no such dimension.
    """
    number, rank = index(axis), x.rank + more
    if not -rank <= number < rank:
        raise ValueError(f"{op}({x.type}): there is no dimension {number} in {rank}")
    return number % rank
