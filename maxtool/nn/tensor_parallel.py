"""One graph for each of several devices, the same for all: each has a part of the weights.

Layers say by their role which part (Shoeybi et al. 2019, Megatron-LM): a product whose outputs are
split leaves them split for one whose inputs are, and its sums are added up over the devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

from maxtool.graph import Shard, ShardingStrategy, Tensor, Weight, ops
from maxtool.nn import tree
from maxtool.nn.placement import sharding_of
from maxtool.nn.tree import Node


class Role(Enum):
    """Role of a weight ``[..., out, in]`` in a product that is split over devices."""

    OUTPUTS = "some of the outputs, which stay there"
    GATHERED = "some of the outputs, which all devices get"
    INPUTS = "some of the inputs, and sums that are added up over the devices"

    def axis(self, rank: int) -> int | None:
        """The dimension that is split of a weight, or of a bias; None where it is whole."""
        inputs = self is Role.INPUTS
        return (None if inputs else 0) if rank == 1 else rank - 1 - (not inputs)


class LocalShard(Shard):
    """Each device's part of a weight, under the weight's own name and the first part's shape."""

    def __init__(self, whole: Weight, strategy: ShardingStrategy) -> None:
        super().__init__(whole, strategy, 0, whole.device)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the whole weight."""
        return self.whole.name

    @property
    def local_name(self) -> str:  # type: ignore[override]
        """The whole weight's name in its layer."""
        return self.whole.local_name


class TracedDevice:
    """The device whose graph is traced; any of them, of which there are ``count``."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._parts: dict[int, LocalShard] = {}

    def part(self, weight: Weight) -> Weight:
        """Return the device's part of a weight: the weight itself if it is not split."""
        strategy = weight.sharding_strategy
        if strategy is None or strategy.axis is None:
            return weight
        return self._parts.setdefault(id(weight), LocalShard(weight, strategy))


_ONE: ContextVar[TracedDevice | None] = ContextVar("maxtool_one_of_several", default=None)


def one() -> TracedDevice | None:
    """The device whose graph is traced, if it is one of several."""
    return _ONE.get()


def part(weight: Weight) -> Weight:
    """Return the part of a weight on the device whose graph is traced."""
    device = one()
    return weight if device is None else device.part(weight)


def summed(x: Tensor, weight: Weight) -> Tensor:
    """A product with a weight, added up over the devices if each has some of the inputs."""
    device = one()
    if device is None or device.part(weight) is weight:
        return x
    return ops.all_reduce(x, device.count)


@contextmanager
def traced_device(module: Node, count: int) -> Iterator[None]:
    """Trace graphs of ``module`` for each of several devices inside this block."""
    split(module, count)
    token = _ONE.set(TracedDevice(count))
    try:
        yield
    finally:
        _ONE.reset(token)


def split(module: Node, count: int) -> dict[str, ShardingStrategy]:
    """Set the split of each weight of a module over ``count`` devices, and return them by name."""
    asked = ShardingStrategy.tensor_parallel(count)
    plan: dict[str, tuple[Weight, ShardingStrategy]] = {}
    for path, layer in tree.modules(module):
        for name, weight in tree.weights(layer).items():
            if name not in tree.shared(layer):
                own = sharding_of(layer, name, weight, asked)
                plan[tree.join(path, weight.local_name)] = (weight, own)
    problems = [
        f"{name!r}: {why}" for name, strategies in plan.items() if (why := _uneven(*strategies))
    ]
    if problems:
        raise ValueError(f"weights make no {count} equal parts: {'; '.join(problems)}")
    for weight, own in plan.values():
        weight.sharding_strategy = own
    return {name: own for name, (_, own) in plan.items()}


def strategy_of(role: Role | None, weight: Weight, count: int) -> ShardingStrategy:
    """Return the split of a weight with a role; outputs that all need are split only evenly."""
    axis = role.axis(weight.shape.rank) if role is not None else None
    if axis is None or (role is Role.GATHERED and int(weight.shape[axis]) % count):
        return ShardingStrategy.replicate(count)
    return ShardingStrategy.axiswise(axis, count)


def _uneven(weight: Weight, strategy: ShardingStrategy) -> str:
    """Return the reason why the parts of a weight differ; empty if they are alike."""
    if strategy.axis is None:
        return ""
    if problem := strategy.problem(weight.shape, weight.quantization_encoding):
        return problem
    unit = strategy.unit(weight.shape.rank, weight.quantization_encoding)
    count = int(weight.shape[strategy.axis]) // unit
    what = "elements" if unit == 1 else f"blocks of {unit} elements"
    uneven = count % strategy.num_devices
    return f"{count} {what} along dimension {strategy.axis}" if uneven else ""
