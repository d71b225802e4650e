"""Devices, what this machine has to compute on, and the arrays that lie there."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from maxtool.graph import Tensor
from maxtool.graph.device import CPU, Accelerator, Device, accelerator_count

__all__ = ["CPU", "Accelerator", "Buffer", "DLPackArray", "Device", "Tensor", "accelerator_count"]

# One class serves values with data and values of graphs; an older name of Buffer is Tensor.
Buffer = Tensor


@runtime_checkable
class DLPackArray(Protocol):
    """An array that others can read by the DLPack protocol: NumPy's, a ``Tensor``, PyTorch's."""

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - the protocol's types
        """A capsule with the data."""

    def __dlpack_device__(self) -> tuple[Any, int]:
        """The kind and the number of the device that it is on."""
