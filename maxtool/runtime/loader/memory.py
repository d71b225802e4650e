"""Arrays as compiled code takes them: aligned, and of their type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from .errors import BadInput, BadUsage
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


class DeviceMemory(Protocol):
    """Memory of a device, which a state is in."""

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:  # noqa: ANN401
        """A tensor of zeros."""

    def clear(self, tensor: Any) -> None:  # noqa: ANN401
        """Make all of a tensor zero again."""

    def arrays(self, tensors: Sequence[Any]) -> list[Array]:
        """Read what tensors hold."""


class State:
    """The memory of one generation: zeros at first, written in place by each call.

    Attributes:
        specs: Its tensors, as the manifest lists them.
        dims: The sizes of its named dimensions.
        parts: What compiled code takes on each device: all its tensors there.

    Raises:
        BadUsage: If ``dims`` lacks a size.
    """

    def __init__(
        self, devices: Sequence[DeviceMemory], specs: Sequence[ArraySpec], dims: Mapping[str, int]
    ) -> None:
        import tvm_ffi

        named = {size for spec in specs for size in spec.names}
        if wrong := [name for name in sorted(named) if dims.get(name, 0) < 1]:
            raise BadUsage(f"a state needs the sizes of {', '.join(wrong)}, from 1 up")
        self.specs, self.dims = specs, {name: dims[name] for name in named}
        self._tensors = [
            (device, [device.zeros(spec.sizes(dims), spec.dtype) for spec in specs])
            for device in devices
        ]
        self.parts = [tvm_ffi.Array(tensors) for _, tensors in self._tensors]

    @property
    def arrays(self) -> list[Array]:
        """Return the contents, device by device: its own memory on a CPU, a copy from others."""
        return [a for device, tensors in self._tensors for a in device.arrays(tensors)]

    def clear(self) -> None:
        """Make it zeros again."""
        for device, tensors in self._tensors:
            for tensor in tensors:
                device.clear(tensor)

    def tensor(self, name: str) -> Any:  # noqa: ANN401
        """One of its tensors on the first device."""
        return self._tensors[0][1][[spec.name for spec in self.specs].index(name)]


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
    sizes = zip(spec.shape, array.shape, strict=True)
    return all(
        size == (dims.get(name, size) if isinstance(name, str) else name) for name, size in sizes
    )


def nbytes_of(tensor: Any) -> int:  # noqa: ANN401
    """The size of a tensor."""
    return int(tensor.numel()) * np.dtype(str(tensor.dtype)).itemsize
