"""Where a tensor lives and where an operation runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """A device named without touching it, so a graph for a GPU can be built where there is none.

    Attributes:
        device_type: ``"cpu"`` or ``"gpu"``.
        id: Which one, counted from 0.
    """

    device_type: str
    id: int = 0

    @classmethod
    def CPU(cls, id: int = 0) -> DeviceRef:  # noqa: A002, N802 - the reference API's names
        """The host."""
        return cls("cpu", id)

    @classmethod
    def GPU(cls, id: int = 0) -> DeviceRef:  # noqa: A002, N802 - the reference API's names
        """An accelerator."""
        return cls("gpu", id)

    def __str__(self) -> str:
        return f"{self.device_type}:{self.id}"


def CPU(id: int = 0) -> DeviceRef:  # noqa: A002, N802 - the reference API's names
    """The host device."""
    return DeviceRef.CPU(id)
