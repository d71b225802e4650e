"""Values on their way into programs and out of them: on the host aligned arrays, or on a device.

bfloat16 travels as its bits, and what does not lie as kernels expect it is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from maxtool.compiler.device_memory import DeviceArray, on_accelerator, upload
from maxtool.compiler.storage import WeightStorage
from maxtool.compiler.storage_types import bits
from maxtool.graph import BufferType, DeviceRef, Tensor, TensorType
from maxtool.runtime.loader.memory import aligned
from maxtool.runtime.loader.specs import ALIGNMENT

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Argument:
    """One argument of a call."""

    tensor: Any  # as the virtual machine takes it
    array: Array | None = None  # what that is over, on the host
    source: Array | None = None  # the array that it was taken from, which may be another

    def write_back(self) -> None:
        """Copy back the results that were written to aligned copies."""
        array, source = self.array, self.source
        if array is not None and source is not None and not np.may_share_memory(source, array):
            source[...] = array.view(source.dtype)


def passed(name: str, value: Tensor, tensor_type: TensorType) -> Argument:
    """A value as an argument of that type; ``name`` is what messages call the function."""
    writes = isinstance(tensor_type, BufferType)
    if writes and _is_elsewhere(value.device, tensor_type.device):
        where = f"is on {value.device.name}, and is written on {tensor_type.device.name}"
        raise ValueError(f"{name}: a buffer {where}; move it with to() first")
    if tensor_type.device.is_gpu():
        return Argument(on_accelerator(value, tensor_type.device))
    source = value.to_numpy()
    if writes and not source.flags.writeable:
        raise ValueError(f"{name}: the array of a buffer is written in place and is read-only")
    array = _plain(source)
    return Argument(_host_tensor(array), array, source)


def captured(storage: WeightStorage, values: Array, device: DeviceRef) -> Any:  # noqa: ANN401 - TVM's
    """A weight as it is stored, in memory of its own on a device."""
    if device.is_gpu():
        return upload(storage.store(values), device).tensor
    stored = _plain(storage.store(values))
    shared = np.may_share_memory(stored, values)
    return _host_tensor(aligned_copy(stored) if shared else stored)


def returned(value: Any, tensor_type: TensorType, read: Sequence[Array]) -> Tensor:  # noqa: ANN401 - TVM's
    """A result as a tensor, which on the host is no view of an array that was read."""
    if tensor_type.device.is_gpu():
        there = TensorType(tensor_type.dtype, tuple(value.shape), tensor_type.device)
        return Tensor.on_accelerator(there, DeviceArray(value, tensor_type.dtype))
    array: Array = np.from_dlpack(value)
    if any(np.may_share_memory(array, other) for other in read):
        array = array.copy()
    dtype = tensor_type.dtype.to_numpy()
    typed = array if array.dtype == dtype else array.view(dtype)
    if tensor_type.shape.is_static:
        return Tensor.holding(tensor_type, typed)
    return Tensor(typed, None, tensor_type.device)


def aligned_copy(array: Array) -> Array:
    """The same elements contiguous, in memory of their own, at an address that kernels accept."""
    copy = aligned(array.shape, array.dtype, np.empty)
    copy[...] = array
    return copy


def _is_elsewhere(device: DeviceRef, wanted: DeviceRef) -> bool:
    """Return whether two devices' memories are distinct; parts of the host share theirs."""
    return device != wanted and (device.is_gpu() or wanted.is_gpu())


def _host_tensor(array: Array) -> Any:  # noqa: ANN401 - tvm ships no types
    if not array.size:  # NumPy's strides of an empty array are not those that kernels expect
        return tvm.runtime.empty(array.shape, str(array.dtype))
    return tvm_ffi.from_dlpack(array)


def _plain(array: Array) -> Array:
    """``array``, or a copy of it, such that TVM takes it: aligned, writable, bfloat16 as bits."""
    plain = bits(array)
    fits = plain.flags.writeable and plain.ctypes.data % ALIGNMENT == 0
    return plain if fits else aligned_copy(plain)
