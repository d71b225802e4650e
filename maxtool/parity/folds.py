"""Functions of many elements at once: sums and extremes, and what is largest."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from maxtool.parity.array_types import Array, Axes, Definitions


def _fold(function: Callable[..., Any]) -> Callable[..., Array]:
    """A reduction that keeps the dimensions; whole numbers wrap around as their type does."""

    def folded(x: Array, axes: Axes) -> Array:
        return np.asarray(function(x, axis=axes, keepdims=True))

    return folded


def _extreme(function: Callable[..., Any], sign: float) -> Callable[..., Array]:
    """A largest or smallest element; of nothing the end of the type's numbers."""

    def extreme(x: Array, axes: Axes) -> Array:
        if x.dtype.kind in "iu":
            limits = np.iinfo(x.dtype)
            end: float = limits.min if sign < 0 else limits.max
        else:
            end = sign * np.inf
        return np.asarray(function(x, axis=axes, keepdims=True, initial=end))

    return extreme


def _logsumexp(x: Array, axes: Axes) -> Array:
    """Add up exponentials relative to the largest element, unless that is infinite."""
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isinf(top), 0, top)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True))
    return np.where(np.isinf(top), top, total + shift)


def _place(function: Callable[..., Any]) -> Callable[..., Array]:
    """The index of an element among those of some dimensions in row-major order."""

    def place(x: Array, axes: Axes) -> Array:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        rows = x.transpose(*kept, *axes).reshape(
            *(x.shape[axis] for axis in kept), prod(x.shape[axis] for axis in axes)
        )
        return np.expand_dims(function(rows, axis=-1), axes)

    return place


def _cumsum(x: Array, axes: Axes, exclusive: bool, reverse: bool) -> Array:
    (axis,) = axes
    ordered = np.flip(x, axis) if reverse else x
    sums = ordered.cumsum(axis) - (ordered if exclusive else 0)
    return np.flip(sums, axis) if reverse else sums


def _argsort(x: Array, axes: Axes, ascending: bool) -> Array:
    """The order of elements: the first of equal ones comes first, NaN is above every number."""
    (axis,) = axes
    if ascending:
        return x.argsort(axis, kind="stable")
    order = np.flip(np.flip(x, axis).argsort(axis, kind="stable"), axis)
    return x.shape[axis] - 1 - order


def _top_k(x: Array, axes: Axes, k: int) -> tuple[Array, Array]:
    (axis,) = axes
    order = _argsort(x, axes, ascending=False).take(range(k), axis)
    return np.take_along_axis(x, order, axis), order


OF_NUMPY = ("all", "any", "mean", "prod", "sum")

COMPUTED: Definitions = {
    **{name: _fold(getattr(np, name)) for name in OF_NUMPY},
    "argmax": _place(np.argmax),
    "argmin": _place(np.argmin),
    "argsort": _argsort,
    "cumsum": _cumsum,
    "logsumexp": _logsumexp,
    "max": _extreme(np.max, -1),
    "min": _extreme(np.min, 1),
    "top_k": _top_k,
}
