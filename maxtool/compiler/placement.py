"""Devices of a module, their targets, and their numbers in TVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

from tvm.relax.global_info import VDevice

from maxtool.compiler.device_memory import OF_KIND, runtime_device
from maxtool.compiler.targets import Target
from maxtool.graph import DeviceRef, Graph, Node
from maxtool.graph.limits import devices as named_devices
from maxtool.graph.type import HOST


class Placement:
    """The devices of one module.

    A virtual machine counts its devices; the host comes last, as TVM wants it. Where all values are
    on one device nothing needs to be said of it: it is the machine's first. Every part of the host
    is the host. The targets are what to compile for, by the kind of device.
    """

    def __init__(self, devices: Iterable[DeviceRef], targets: Mapping[str, Target]) -> None:
        distinct = {physical(device) for device in devices} or {HOST}
        self.devices = tuple(sorted(distinct, key=lambda one: (one.is_cpu(), one.id)))
        self._targets = targets

    @classmethod
    def of(cls, graphs: Iterable[Graph], targets: Mapping[str, Target]) -> Placement:
        """Return the placement of graphs that run together."""
        return cls({device for graph in graphs for device in named_devices(graph)}, targets)

    @cached_property
    def vdevices(self) -> list[Any]:
        """TVM's names of the devices."""
        return [
            VDevice(self.target(device).tvm, runtime_device(device).index, "global")
            for device in self.devices
        ]

    @property
    def is_single(self) -> bool:
        """Return whether there is one device only."""
        return len(self.devices) == 1

    def target(self, device: DeviceRef) -> Target:
        """Return the target of a device's kernels."""
        return self._targets[device.device_type]

    def vdevice(self, device: DeviceRef) -> Any:  # noqa: ANN401 - tvm ships no types
        """TVM's name of a device, in the types of its values; None where there is only one."""
        return None if self.is_single else self.vdevices[self.devices.index(physical(device))]


def device_of(node: Node) -> DeviceRef:
    """Return where a node is computed: where its operands are; its result, if it has none."""
    return (*node.inputs, *node.outputs)[0].device


def physical(device: DeviceRef) -> DeviceRef:
    """The name of a device; the host's for all its parts."""
    return DeviceRef.from_device(device) if device.is_gpu() else HOST


# A placement, or a target for everything.
Placed: TypeAlias = Placement | Target


def placed(target: Placed) -> Placement:
    """A placement itself; for a target that of an artifact, with all values on one device."""
    if isinstance(target, Placement):
        return target
    return Placement([], dict.fromkeys(OF_KIND, target))
