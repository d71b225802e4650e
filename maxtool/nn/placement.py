"""Placement of a tree's weights: on one device, or split over several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from maxtool.graph import DeviceRef, ShardingStrategy, Weight
from maxtool.nn import tree
from maxtool.nn.tree import Node


def by_dimension(weight: Weight, strategy: ShardingStrategy) -> ShardingStrategy:
    """Return a weight's split; a weight without that dimension is replicated."""
    fits = strategy.axis is not None and strategy.axis < weight.shape.rank
    return strategy if fits else ShardingStrategy.replicate(strategy.num_devices)


@singledispatch
def sharding_of(
    _layer: Node, _name: str, weight: Weight, strategy: ShardingStrategy
) -> ShardingStrategy:
    """Return how a layer, by its class, splits its weight at an attribute under a strategy."""
    return by_dimension(weight, strategy)


def place(root: Node, devices: Sequence[DeviceRef], strategy: ShardingStrategy | None) -> None:
    """Move every weight of a tree to a device, or split it: implements ``Module.to``."""
    _check(devices, strategy)
    placed = [
        (path, weight, sharding_of(module, name, weight, strategy) if strategy else None)
        for path, module in tree.modules(root)
        for name, weight in tree.weights(module).items()
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
