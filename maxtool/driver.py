"""Devices: what this machine has to compute on, and the values that are held on them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from maxtool.graph.device import CPU, Accelerator, Device, accelerator_count
from maxtool.graph.tensor import Tensor

__all__ = ["CPU", "Accelerator", "Buffer", "DLPackArray", "Device", "Tensor", "accelerator_count"]

# One class serves all values; the reference API calls those that hold data by either name.
Buffer = Tensor


@runtime_checkable
class DLPackArray(Protocol):
    """An array of any library that shares its memory through DLPack."""

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - the protocol's types
        """A capsule with the memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device."""
