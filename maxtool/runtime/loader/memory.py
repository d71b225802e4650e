"""Arrays as compiled code takes them: aligned, of their type, mapped from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .errors import BadInput, BadUsage
from .manifest import ALIGNMENT, DTYPES, Manifest, Spec

Array: TypeAlias = np.ndarray[Any, Any]


def aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros at a 64-byte boundary, which compiled code relies on."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


class State:
    """The memory of one generation: zeros at first, written in place by each call."""

    def __init__(self, specs: Sequence[Spec], dims: Mapping[str, int]) -> None:
        import tvm_ffi

        named = {size for spec in specs for size in spec.shape if isinstance(size, str)}
        if wrong := [name for name in sorted(named) if dims.get(name, 0) < 1]:
            raise BadUsage(f"a state needs the sizes of {', '.join(wrong)}, from 1 up")
        self.specs, self.dims = specs, {name: dims[name] for name in named}
        self.arrays = [aligned(spec.sizes(dims), DTYPES[spec.dtype]) for spec in specs]
        self.tensors = tvm_ffi.Array([tvm_ffi.from_dlpack(array) for array in self.arrays])


def map_weights(manifest: Manifest) -> Any:  # noqa: ANN401
    """The weights, as tensors over the mapped file: copy-on-write, since DLPack wants writable."""
    import tvm_ffi

    size = manifest.weights_file.stat().st_size
    mapped = (
        np.memmap(manifest.weights_file, np.uint8, "c") if size else aligned((0,), np.dtype("u1"))
    )
    tensors = []
    for spec in manifest.weights:
        raw = mapped[spec.offset : spec.offset + spec.nbytes()]
        tensors.append(tvm_ffi.from_dlpack(raw.view(DTYPES[spec.dtype]).reshape(spec.sizes({}))))
    return tvm_ffi.Array(tensors)


def checked(spec: Spec, array: Array, dims: dict[str, int]) -> Array:
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
