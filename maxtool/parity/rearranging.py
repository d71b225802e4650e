"""Elements that are moved, repeated or made from sizes, and not computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def _pad(x: Array, value: Array, before: tuple[int, ...], after: tuple[int, ...]) -> Array:
    return np.pad(x, list(zip(before, after, strict=True)), constant_values=value)


def _range(start: Array, step: Array, size: int) -> Array:
    return start + step * np.arange(size, dtype=start.dtype)


MOVED: Mapping[str, Callable[..., Any]] = {
    "broadcast_to": np.broadcast_to,
    "concat": lambda *arrays, axis: np.concatenate(arrays, axis),
    "pad": _pad,
    "permute": lambda x, dims: x.transpose(dims),
    "print": lambda _x, label: (),  # noqa: ARG005 - nothing comes of it
    "range": _range,
    "rebind": lambda x, shape, message: x,  # noqa: ARG005 - every result's shape is checked
    "reshape": np.reshape,
    "shape_to_tensor": lambda shape, **_: np.array(shape, np.int64),
    "slice": lambda x, ranges: x[ranges],
    "transfer_to": lambda x, device: x,  # noqa: ARG005 - there is one memory
}
