"""Arrays as compiled code takes them: aligned, and of their type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .errors import BadInput
from .narrow_floats import widened
from .specs import ALIGNMENT, BITS, DTYPES, ArraySpec, EntrySpec

Array: TypeAlias = np.ndarray[Any, Any]


def aligned(
    shape: Sequence[int], dtype: np.dtype[Any], new: Callable[..., Array] = np.zeros
) -> Array:
    """Zeros, or what ``new`` fills it with, at a 64-byte boundary: compiled code relies on it."""
    size = math.prod(shape) * dtype.itemsize
    raw = new(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def named(entry: EntrySpec, arrays: Sequence[Array], dims: Mapping[str, int]) -> dict[str, Array]:
    """The outputs by name; types that NumPy lacks as float32.

    Raises:
        BadInput: If the entry gave something else than the manifest says.
    """
    outputs = dict(zip((spec.name for spec in entry.outputs), arrays, strict=False))
    if len(arrays) != len(entry.outputs) or not all(
        _is(array, spec, dims) for array, spec in zip(arrays, entry.outputs, strict=True)
    ):
        listed = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
        said = ", ".join(map(str, entry.outputs))
        raise BadInput(f"{entry.function!r} gives {listed}, and the manifest says {said}")
    for spec in entry.outputs:
        if spec.dtype in BITS:
            outputs[spec.name] = widened(outputs[spec.name], spec.dtype)
    return outputs


def _is(array: Array, spec: ArraySpec, dims: Mapping[str, int]) -> bool:
    """Return whether an output has the type and the sizes that the manifest says."""
    if array.dtype != DTYPES[spec.dtype] or array.ndim != len(spec.shape):
        return False
    for name, size in zip(spec.shape, array.shape, strict=True):
        if size != (dims.get(name, size) if isinstance(name, str) else name):
            return False
    return True


def nbytes_of(tensor: Any) -> int:  # noqa: ANN401
    """The size of a tensor."""
    return int(tensor.numel()) * np.dtype(str(tensor.dtype)).itemsize
