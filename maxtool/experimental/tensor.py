"""Eager tensors, their types, and what is taken where neither type nor device is said."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType
from maxtool.graph.device import CPU, Device

__all__ = ["Tensor", "TensorType", "defaults"]


def defaults(dtype: DType | None = None, device: Device | None = None) -> tuple[DType, Device]:
    """The element type and the device that are used where none is given.

    Args:
        dtype: Taken as it is; float32 when absent.
        device: Likewise; the host when absent.
    """
    return dtype or DType.float32, device or CPU()
