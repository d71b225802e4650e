"""Inputs of an entry: arrays of the types and sizes that it takes, aligned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from .errors import BadInput, DoesNotFit
from .manifest import Manifest
from .memory import Array, aligned
from .specs import BEHIND, BITS, DTYPES, ArraySpec, EntrySpec, InputSpec

# Shapes of which the sizes are kept: a detector in a stream has one, a server of texts many.
MOST_KEPT = 64


class InputBinder:
    """Checks of the inputs of a model; shapes that an entry has taken before are known."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._known: dict[tuple[object, ...], dict[str, int]] = {}

    def bind(
        self, entry: EntrySpec, arrays: Mapping[str, object]
    ) -> tuple[dict[str, Array], Mapping[str, int]]:
        """The inputs of an entry, each checked and aligned, and the sizes of the named dimensions.

        What has a default and is not given is full of it, of the size that the others have.
        """
        specs = {spec.name: spec for spec in entry.inputs}
        if arrays.keys() != specs.keys():
            _check_names(entry, arrays.keys())
        by_name = {name: _as_array(array, specs[name].dtype) for name, array in arrays.items()}
        dims = self._sizes(entry, by_name)
        given = {name: _checked(specs[name], array) for name, array in by_name.items()}
        _check_values(self._manifest, given)
        _check_padding(self._manifest, given)
        bound = {
            name: given[name] if name in given else _filled(spec, dims)
            for name, spec in specs.items()
        }
        return bound, dims

    def _sizes(self, entry: EntrySpec, by_name: Mapping[str, Array]) -> Mapping[str, int]:
        """The sizes of the named dimensions, from arrays by name."""
        key = (entry.function, *((name, array.shape) for name, array in by_name.items()))
        dims = self._known.get(key)
        if dims is None:
            shapes = {name: array.shape for name, array in by_name.items()}
            dims = check_shapes(self._manifest, entry, shapes)
            if len(self._known) >= MOST_KEPT:
                self._known = {}
            self._known[key] = dims
        return dims


def check_shapes(
    manifest: Manifest, entry: EntrySpec, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """The sizes of the named dimensions, from the shapes of inputs by name; all are checked."""
    dims: dict[str, int] = {}
    for spec in entry.inputs:
        if spec.name in shapes:
            _check_shape(spec, shapes[spec.name], dims, entry.least)
    for name, size in dims.items():
        limit = manifest.limits.get(name)
        if isinstance(limit, int) and size > limit:
            raise DoesNotFit(f"{name} is {size}; the model takes at most {limit}")
        if size < (least := entry.least.get(name, 1)):
            raise DoesNotFit(f"{name} is {size}; the model takes at least {least}")
    return dims


def _as_array(value: object, dtype: str) -> Array:
    """An array of what is given; Python's own floats are of the float type that is taken."""
    array = np.asarray(value)
    if array.dtype == np.float64 and not hasattr(value, "dtype") and DTYPES[dtype].kind == "f":
        return array.astype(DTYPES[dtype])
    bits = BITS.get(dtype)
    if bits is None:
        return array
    named = {dtype, f"void{8 * array.dtype.itemsize}"}  # as ml_dtypes has it, and an npz file of it
    is_of_it = array.dtype.name in named and array.itemsize == bits.itemsize
    return array.view(bits) if is_of_it else array


def _check_names(entry: EntrySpec, names: Collection[str]) -> None:
    wanted = {spec.name for spec in entry.inputs}
    needed = {spec.name for spec in entry.inputs if spec.default is None}
    parts = {"missing": sorted(needed - {*names}), "unknown": sorted({*names} - wanted)}
    if any(parts.values()):
        said = ", ".join(
            f"{problem} {', '.join(found)}" for problem, found in parts.items() if found
        )
        hint = f"the entry takes {', '.join(map(str, entry.inputs))}"
        raise BadInput(f"inputs: {said}", hint=hint)


def _filled(spec: InputSpec, dims: Mapping[str, int]) -> Array:
    """The array that stands for an input that was not given."""
    array = aligned(spec.sizes(dims), DTYPES[spec.dtype])
    array[...] = spec.default
    return array


def _check_values(manifest: Manifest, inputs: Mapping[str, Array]) -> None:
    for name, array in inputs.items():
        limit = manifest.limits.get(name)
        if isinstance(limit, tuple) and array.size:
            low, high = int(array.min()), int(array.max())
            if low < limit[0] or high > limit[1]:
                what = f"{name} has values from {low} to {high}"
                raise DoesNotFit(f"{what}; the model takes {limit[0]} to {limit[1]}")


def _check_padding(manifest: Manifest, inputs: Mapping[str, Array]) -> None:
    """Refuse padding before or within a text, where the model would read it as a part of that."""
    mask = inputs.get("attention_mask")
    if manifest.padding == BEHIND and mask is not None and (mask[:, 1:] > mask[:, :-1]).any():
        raise DoesNotFit("attention_mask has padding before or within a text; it belongs behind")


def _check_shape(
    spec: ArraySpec, shape: tuple[int, ...], dims: dict[str, int], least: Mapping[str, int]
) -> None:
    """Hold a shape against what is taken; names of dimensions get their sizes in ``dims``."""
    pairs = [*zip(shape, spec.shape, strict=False)]
    is_empty = any(size == 0 and not _may_be_empty(wanted, least) for size, wanted in pairs)
    if len(shape) != len(spec.shape) or is_empty:
        sizes = ", whose sizes are at least 1" if is_empty else ""
        what = f"{spec.name} has shape {shape}; the model takes {spec}{sizes}"
        raise BadInput(what, tensor=spec.name)
    for size, wanted in zip(shape, spec.shape, strict=True):
        expected = dims.setdefault(wanted, size) if isinstance(wanted, str) else wanted
        if size != expected:
            known = f" with {wanted} {expected}" if isinstance(wanted, str) else ""
            what = f"{spec.name} has shape {shape}; the model takes {spec}{known}"
            raise BadInput(what, tensor=spec.name)


def _may_be_empty(size: int | str, least: Mapping[str, int]) -> bool:
    return isinstance(size, str) and least.get(size, 1) == 0


def _checked(spec: ArraySpec, array: Array) -> Array:
    """One input, aligned and of its type."""
    dtype = DTYPES[spec.dtype]
    if array.dtype != dtype and not _is_taken(array, spec.dtype, dtype):
        what = f"{spec.name} is {array.dtype}; the model takes {spec}"
        as_bits = f"give an array of that type, or {dtype} with the bits"
        raise BadInput(what, tensor=spec.name, hint=as_bits if spec.dtype in BITS else None)
    copy = aligned(array.shape, dtype, np.empty)
    copy[...] = array
    return copy


def _is_taken(array: Array, name: str, dtype: np.dtype[Any]) -> bool:
    """Return whether an array has the type of that name, or one that it holds every value of."""
    if name in BITS:
        return bool(array.dtype == dtype)
    python = array.dtype == np.int64 and dtype.kind in "iu"
    return np.can_cast(array.dtype, dtype) or (python and _in_range(array, dtype))


def _in_range(array: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether Python integers, int64 in NumPy, are all in the range of ``dtype``."""
    limits = np.iinfo(dtype)
    return not array.size or bool(limits.min <= array.min() and array.max() <= limits.max)
