"""What an entry is called with: arrays of the types and sizes that it takes, aligned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import BadInput, DoesNotFit
from .manifest import DTYPES, Entry, Manifest, Spec
from .memory import Array, aligned


def bind(
    manifest: Manifest, entry: Entry, arrays: Mapping[str, object]
) -> tuple[dict[str, Array], dict[str, int]]:
    """The inputs of an entry, each checked and aligned, and the sizes of the named dimensions.

    Raises:
        BadInput: If an array is missing, unknown, or of another type or shape.
        DoesNotFit: If sizes or values go beyond the model's limits.
    """
    wanted = {spec.name for spec in entry.inputs}
    missing, unknown = wanted - arrays.keys(), arrays.keys() - wanted
    if missing or unknown:
        parts = {"missing": sorted(missing), "unknown": sorted(unknown)}
        said = ", ".join(f"{k} {', '.join(v)}" for k, v in parts.items() if v)
        raise BadInput(f"{said}; the entry takes {', '.join(map(str, entry.inputs))}")
    dims: dict[str, int] = {}
    bound = {one.name: _checked(one, np.asarray(arrays[one.name]), dims) for one in entry.inputs}
    _check_limits(manifest, bound, dims)
    return bound, dims


def check_position(manifest: Manifest, entry: Entry, inputs: Mapping[str, Array]) -> None:
    """Refuse a position whose tokens would be written behind the end of the state.

    Raises:
        DoesNotFit: If it is one.
    """
    if not entry.state or manifest.context is None:
        return
    ids = "input_ids" if entry.ids is None else entry.ids.name
    position, length = int(inputs["position"][0]), inputs[ids].shape[1]
    if position < 0 or position + length > manifest.context:
        what = f"position {position} and {length} tokens"
        raise DoesNotFit(f"{what} go beyond the context of {manifest.context}")


def _check_limits(manifest: Manifest, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> None:
    for name, limit in manifest.limits.items():
        if isinstance(limit, int):
            if dims.get(name, 0) > limit:
                raise DoesNotFit(f"{name} is {dims[name]}; the model takes at most {limit}")
        elif name in inputs:
            low, high = int(inputs[name].min()), int(inputs[name].max())
            if low < limit[0] or high > limit[1]:
                what = f"{name} has values from {low} to {high}"
                raise DoesNotFit(f"{what}; the model takes {limit[0]} to {limit[1]}")


def _checked(spec: Spec, array: Array, dims: dict[str, int]) -> Array:
    """One input, aligned and of its type; names of dimensions get their sizes in ``dims``."""
    dtype = DTYPES[spec.dtype]
    python = array.dtype == np.int64 and dtype.kind == "i"
    if not (np.can_cast(array.dtype, dtype) or (python and _fits(array, dtype))):
        raise BadInput(f"{spec.name} is {array.dtype}; the model takes {spec}")
    if array.ndim != len(spec.shape) or not array.size:
        raise BadInput(f"{spec.name} has shape {array.shape}; the model takes {spec}")
    for size, wanted in zip(array.shape, spec.shape, strict=True):
        expected = dims.setdefault(wanted, size) if isinstance(wanted, str) else wanted
        if size != expected:
            raise BadInput(
                f"{spec.name} has shape {array.shape}; the model takes {spec}"
                + (f" with {wanted} {expected}" if isinstance(wanted, str) else "")
            )
    copy = aligned(array.shape, dtype)
    copy[...] = array
    return copy


def _fits(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether Python's integers, which NumPy makes int64, are all in the range of ``dtype``."""
    limits = np.iinfo(dtype)
    return bool(array.size and limits.min <= array.min() and array.max() <= limits.max)
