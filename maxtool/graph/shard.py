"""The parts of weights that are split over devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maxtool.graph.device import DeviceRef
from maxtool.graph.sharding import Part, ShardingStrategy
from maxtool.graph.type import TensorType
from maxtool.graph.weight import DerivedWeight, Family, Weight
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.data import WeightData


class Shard(DerivedWeight):
    """What one device has of a weight: of its shape, name and data, whatever becomes of them.

    Args:
        whole: The weight.
        strategy: How it is split.
        index: Which of the devices.
        device: That device.
    """

    def __init__(
        self, whole: Weight, strategy: ShardingStrategy, index: int, device: DeviceRef
    ) -> None:
        self.graph, self._data = None, None
        self.whole, self.index = whole, index
        self.sharding_strategy = None
        self._strategy, self._on = strategy, device

    @property
    def part(self) -> Part:
        """What it is of the weight."""
        return Part(self.whole.name, self._strategy, self.index)

    @property
    def axis(self) -> int | None:
        """The dimension that is split; None where every device has the whole."""
        return self._strategy.axis

    @property
    def bounds(self) -> tuple[int, int]:
        """First element and end of what it has of the dimension that is split.

        Raises:
            ValueError: If the weight cannot be split so any more.
        """
        whole = self._checked()
        return self._strategy.bounds(list(whole.shape), self.index, whole.quantization_encoding)

    @property
    def type(self) -> TensorType:  # type: ignore[override]  # it follows the whole weight
        """Element type, shape and device.

        Raises:
            ValueError: If the weight cannot be split so any more.
        """
        whole = self._checked()
        shape = self._strategy.shape_of(whole.shape, self.index, whole.quantization_encoding)
        return TensorType(whole.dtype, shape, self._on)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the whole weight, with its number."""
        return f"{self.whole.name}[{self.index}]"

    @property
    def local_name(self) -> str:  # type: ignore[override]
        """The whole weight's name in its layer, with its number."""
        return f"{self.whole.local_name}[{self.index}]"

    @property
    def family(self) -> Family:  # type: ignore[override]  # that of the whole weight
        """Gives the weights that were named together with the whole one."""
        return self.whole.family

    def relative(self, name: str, family: Mapping[str, Weight]) -> Weight | None:
        """The part that its device has of another weight, if that is split over it too."""
        suffix = f"[{self.index}]"
        whole = self.whole.relative(name.removesuffix(suffix), family)
        parts = whole.shards if whole is not None and name.endswith(suffix) else ()
        return next((part for part in parts if part.device == self._on), None)

    @property
    def align(self) -> int | None:  # type: ignore[override]
        """The alignment in bytes asked of the whole weight's data."""
        return self.whole.align

    @property
    def quantization_encoding(self) -> QuantizationEncoding | None:  # type: ignore[override]
        """How its blocks are encoded: as those of the whole."""
        return self.whole.quantization_encoding

    @property
    def is_bound(self) -> bool:
        """Whether the whole weight has data."""
        return self.whole.is_bound

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Its part of the data, not copied.

        Raises:
            MissingWeight: If the whole weight has none yet.
        """
        whole = self._checked()
        data, shape = whole.to_numpy(), whole.shape.static()
        whole_data = WeightData(data, whole.name, whole.dtype, shape, whole.quantization_encoding)
        return self._strategy.cut(whole_data, self.index).data

    def _checked(self) -> Weight:
        """The whole weight, which may have been changed since it was split."""
        _require(self.whole, self._strategy)
        return self.whole


def split(weight: Weight, devices: tuple[DeviceRef, ...]) -> tuple[Shard, ...]:
    """The parts of a weight on these devices, as its sharding strategy says.

    Raises:
        ValueError: If it has none, that is for another number of devices, two of them are the same,
            or it cannot be split so.
    """
    strategy = weight.sharding_strategy
    if strategy is None:
        raise ValueError(f"weight {weight.name!r} has no sharding strategy")
    if len(devices) != strategy.num_devices or len(set(devices)) < len(devices):
        names = ", ".join(device.name for device in devices) or "none"
        count = strategy.num_devices
        raise ValueError(f"weight {weight.name!r} is split over {count} devices, not over {names}")
    _require(weight, strategy)
    return tuple(Shard(weight, strategy, index, device) for index, device in enumerate(devices))


def the_one_on(device: DeviceRef, weight: Weight) -> Shard:
    """The part of a weight on a device.

    Raises:
        ValueError: If none of its parts is there.
    """
    for shard in weight.shards:
        if shard.device == device:
            return shard
    names = ", ".join(shard.device.name for shard in weight.shards)
    where = f"its parts are on {names}" if names else "it is not split"
    raise ValueError(f"weight {weight.name!r} has no part on {device.name}: {where}")


def _require(weight: Weight, strategy: ShardingStrategy) -> None:
    if problem := strategy.problem(weight.shape, weight.quantization_encoding):
        raise ValueError(f"weight {weight.name!r}: {problem}")
