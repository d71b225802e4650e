"""The memory of the machine's devices, as TVM's runtime reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from maxtool.compiler.storage_types import bits, stored
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Tensor, Weight

Array = np.ndarray[Any, Any]


# What TVM's runtime calls the devices of each kind, by their number. All parts of the host are one.
OF_KIND: dict[str, Callable[[int], Any]] = {"cpu": lambda _: tvm.cpu(), "gpu": tvm.cuda}


def runtime_device(device: DeviceRef) -> Any:  # noqa: ANN401 - tvm ships no types
    """A device as TVM's runtime names it."""
    return OF_KIND[device.device_type](device.id)


class DeviceArray:
    """Elements in the memory of an accelerator, as ``AcceleratorArray`` describes them.

    TVM's tensor has the type in which the elements are carried, and ``dtype`` is their own.
    """

    def __init__(self, tensor: Any, dtype: DType) -> None:  # noqa: ANN401
        self.tensor = tensor
        self._dtype = dtype

    def to_numpy(self) -> Array:
        """A copy of the elements on the host."""
        array: Array = self.tensor.numpy()
        return array.view(self._dtype.to_numpy())

    def to(self, device: DeviceRef) -> DeviceArray:
        """A copy on another accelerator."""
        return DeviceArray(self.tensor.copyto(runtime_device(device)), self._dtype)

    def __deepcopy__(self, _known: object) -> DeviceArray:
        return DeviceArray(self.tensor.copyto(self.tensor.device), self._dtype)

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - the protocol's types
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device_type, number = self.tensor.__dlpack_device__()
        return int(device_type), int(number)


def upload(array: Array, device: DeviceRef) -> DeviceArray:
    """A copy of an array in the memory of an accelerator."""
    target_device = runtime_device(device.to_device())
    tensor = tvm.runtime.empty(array.shape, stored(DType.from_numpy(array.dtype)), target_device)
    if array.size:
        tensor.copyfrom(bits(array))
    return DeviceArray(tensor, DType.from_numpy(array.dtype))


def on_accelerator(value: Tensor, device: DeviceRef) -> Any:  # noqa: ANN401 - tvm ships no types
    """A tensor's elements on an accelerator, as programs take them; copied if they are not there.

    Those of a tensor that is to live there, and waits on the host, stay.
    """
    if isinstance(value.device_array, DeviceArray):
        there = value.device == device
        return (value.device_array if there else value.device_array.to(device)).tensor
    array = upload(value.to_numpy(), device)
    if value.device == device and not isinstance(value, Weight):
        value.settle(array)
    return array.tensor
