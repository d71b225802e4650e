"""Where the weights of a tree are: on one device, or split over several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maxtool.graph import DeviceRef, ShardingStrategy, Weight
from maxtool.nn import tree

if TYPE_CHECKING:
    from maxtool.nn.stateful import Stateful


def place(root: Stateful, devices: Sequence[DeviceRef], strategy: ShardingStrategy | None) -> None:
    """What :meth:`Stateful.to` does."""
    _check(devices, strategy)
    placed = [
        (path, weight, module.sharding_of(name, weight, strategy) if strategy else None)
        for path, module in tree.modules(root)
        for name, weight in module.layer_weights.items()
    ]
    problems = [
        f"{tree.join(path, weight.local_name)!r}: {problem}"
        for path, weight, own in placed
        if own and (problem := own.problem(weight.shape, weight.quantization_encoding))
    ]
    if problems:
        raise ValueError(f"weights cannot be split so: {'; '.join(problems)}")
    plain = [leaf for leaf in tree.leaves(root) if not isinstance(leaf.tensor, Weight)]
    moved = [leaf.tensor.to(devices[0]) for leaf in plain]
    for _, weight, own in placed:
        weight.place(devices, own)
    for leaf, tensor in zip(plain, moved, strict=True):
        leaf.replace(tensor)


def _check(devices: Sequence[DeviceRef], strategy: ShardingStrategy | None) -> None:
    if strangers := [repr(one) for one in devices if not isinstance(one, DeviceRef)]:
        raise TypeError(
            f"modules are moved to devices such as DeviceRef.CPU(), not {', '.join(strangers)}"
        )
    names = ", ".join(device.name for device in devices)
    if not devices or len(set(devices)) < len(devices):
        raise ValueError(f"modules are moved to devices that differ, not to {names or 'none'}")
    if strategy is None and len(devices) > 1:
        raise ValueError(f"a sharding_strategy says how weights are split over {names}")
    if strategy is not None and strategy.num_devices != len(devices):
        count = strategy.num_devices
        raise ValueError(f"the sharding strategy is for {count} devices, not for {names}")
