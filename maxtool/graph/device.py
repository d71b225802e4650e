"""Devices of tensors and operations.

A :class:`DeviceRef` only names a device. A :class:`Device` is one that this machine has. They are
equal when they mean the same place, and either may be given wherever a device is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from maxtool.errors import MissingDevice
from maxtool.graph.gpus import DRIVER, compute_capabilities, has_driver

KINDS = ("cpu", "gpu")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRef:
    """A device named without touching it, so a graph for a GPU can be built where there is none.

    Attributes:
        device_type: ``"cpu"`` or ``"gpu"``.
        id: Which one, counted from 0.

    Raises:
        ValueError: If it is neither, or the number is negative.
    """

    device_type: str
    id: int = 0

    def __post_init__(self) -> None:
        if self.device_type not in KINDS:
            raise ValueError(f"a device is one of {', '.join(KINDS)}, not {self.device_type!r}")
        if self.id < 0:
            raise ValueError(f"devices are counted from 0: there is no {self.name}")

    @classmethod
    def CPU(cls, id: int = 0) -> DeviceRef:  # noqa: A002, N802 - the reference API's names
        """The host, or a part of it that stands for a device of its own."""
        return DeviceRef("cpu", id)

    @classmethod
    def GPU(cls, id: int = 0) -> DeviceRef:  # noqa: A002, N802 - the reference API's names
        """An accelerator."""
        return DeviceRef("gpu", id)

    @classmethod
    def named(cls, name: object) -> DeviceRef:
        """The device of a name such as ``cpu`` or ``gpu:1``; a device is returned as it is.

        Raises:
            ValueError: If it is neither.
        """
        if isinstance(name, DeviceRef):
            return name
        device_kind, colon, number = str(name).partition(":")
        if colon and not number.isdecimal():
            raise ValueError(f"a device is named cpu, or gpu:0 and so on, not {name!r}")
        return DeviceRef(device_kind, int(number or 0))

    @classmethod
    def from_device(cls, device: DeviceRef) -> DeviceRef:
        """The name of a device; a name is returned as it is."""
        return device if type(device) is DeviceRef else DeviceRef(device.device_type, device.id)

    def to_device(self) -> Device:
        """The device of this name.

        Raises:
            MissingDevice: If this machine has no such device (also a ValueError).
        """
        return CPU(self.id) if self.is_cpu() else Accelerator(self.id)

    def is_cpu(self) -> bool:
        """Return whether it is the host."""
        return self.device_type == "cpu"

    def is_gpu(self) -> bool:
        """Return whether it is an accelerator."""
        return self.device_type == "gpu"

    @property
    def name(self) -> str:
        """``cpu:0``, ``gpu:1``: what messages call it."""
        return f"{self.device_type}:{self.id}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceRef):
            return NotImplemented
        return (self.device_type, self.id) == (other.device_type, other.id)

    def __hash__(self) -> int:
        return hash((self.device_type, self.id))

    def __repr__(self) -> str:
        return self.name


class Device(DeviceRef):
    """A device that this machine has; :class:`CPU` and :class:`Accelerator` make them."""

    __slots__ = ()

    @property
    def label(self) -> str:
        """The kind: ``"cpu"`` or ``"gpu"``."""
        return self.device_type

    @property
    def is_host(self) -> bool:
        """Return whether it is the host."""
        return self.is_cpu()

    def __str__(self) -> str:
        if self.is_gpu():
            return f"Accelerator(id={self.id})"
        return f"CPU(id={self.id})" if self.id else "CPU()"

    def __repr__(self) -> str:
        return f"Device(type={self.device_type},id={self.id})"


class CPU(Device):
    """The host.

    ``CPU(1)`` and so on are the host too, counted as devices of their own: what is placed on
    several devices can be tried where there is no accelerator.
    """

    __slots__ = ()

    def __init__(self, id: int = 0) -> None:  # noqa: A002 - the reference API's name
        super().__init__("cpu", id)


class Accelerator(Device):
    """A GPU; a ``MissingDevice`` (also a ValueError) if this machine has no such device."""

    __slots__ = ()

    def __init__(self, id: int = 0) -> None:  # noqa: A002 - the reference API's name
        super().__init__("gpu", id)
        if id >= (count := accelerator_count()):
            raise _missing(self, count)


@cache
def accelerator_count() -> int:
    """Return the number of GPUs that CUDA's driver reports; 0 where there is none or it fails.

    It is asked once in a process.
    """
    try:
        return len(compute_capabilities())
    except MissingDevice:
        return 0


def _missing(device: DeviceRef, count: int) -> MissingDevice:
    if not has_driver():
        why = f"CUDA's driver, {DRIVER}, cannot be loaded"
    elif not count:
        why = "CUDA's driver finds no device"
    else:
        why = f"CUDA's driver finds {count}, counted from 0"
    hint = "use CPU(); DeviceRef.GPU() names a GPU without asking for one"
    return MissingDevice(f"there is no {device.name} here: {why}", hint=hint)
