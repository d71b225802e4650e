"""``Weight``: a declared tensor in a family of such, and its parts on several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.declared import DeclaredTensor
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import ShapeLike
from maxtool.graph.sharding import ShardingStrategy, WeightPart
from maxtool.graph.type import TensorType
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.view import AllocatedWeight
from maxtool.weights.weight_data import WeightData

Family: TypeAlias = "Callable[[], Mapping[str, Weight]]"


def alone() -> Mapping[str, Weight]:
    """The family of a weight that no tree of modules has named."""
    return {}


class Weight(DeclaredTensor):
    """A named parameter.

    Shape, dtype, encoding, device and alignment may be changed until a graph is built from it.

    Args:
        name: Its name in the layer that owns it; a module's state names it by its full path.
        dtype: The element type.
        shape: Sizes, slowest first.
        device: Where the operations that use it find it.
        quantization_encoding: How its blocks are encoded, for quantized data.
        align: The alignment in bytes that its data must have; that of the dtype when absent.
        sharding_strategy: How :meth:`shard` splits it, if it does.

    Attributes:
        family: Gives the weights of the tree that named it, by the names that they have there now.
        folded: The weight that is computed of this one and others, and named for it.
    """

    family: Family = staticmethod(alone)
    folded: Weight | None = None

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        device: DeviceRef | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        align: int | None = None,
        sharding_strategy: ShardingStrategy | None = None,
    ) -> None:
        super().__init__(name, dtype, shape, device, quantization_encoding, align)
        self.sharding_strategy = sharding_strategy

    @classmethod
    def of(cls, allocated: AllocatedWeight) -> Weight:
        """The weight that the view of a checkpoint allocated, with its data."""
        device = DeviceRef.named(allocated.device)
        shape, encoding = allocated.shape, allocated.quantization_encoding
        weight = cls(allocated.name, allocated.dtype, shape, device, encoding, align=1)
        if allocated.data is not None:
            weight.bind(allocated.data)
        return weight

    @property
    def sharding_strategy(self) -> ShardingStrategy | None:
        """Strategy that :meth:`shard` uses, if there is one."""
        return self._sharding

    @sharding_strategy.setter
    def sharding_strategy(self, strategy: ShardingStrategy | None) -> None:
        self._sharding = strategy
        self._shards: tuple[Shard, ...] = ()

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Parts on the devices that it was last split over."""
        return self._shards

    def place(self, devices: Sequence[DeviceRef], strategy: ShardingStrategy | None) -> None:
        """Move it to the first device and, with a strategy, its parts to all of them."""
        self.device, self.sharding_strategy = devices[0], strategy
        if strategy is not None:
            self.shard(devices)

    @overload
    def shard(self, devices: DeviceRef) -> Shard: ...
    @overload
    def shard(self, devices: Iterable[DeviceRef]) -> list[Shard]: ...
    def shard(self, devices: DeviceRef | Iterable[DeviceRef]) -> Shard | list[Shard]:
        """Return the part for one of the devices that it is split over, or for each device given.

        Raises:
            ValueError: If it has no sharding strategy, which says how many devices there are, it
                cannot be split so, or has no part on that device.
        """
        if isinstance(devices, DeviceRef):
            return the_one_on(devices, self)
        parts_on = tuple(devices)
        if parts_on != tuple(shard.device for shard in self._shards):
            self._shards = split(self, parts_on)
        return list(self._shards)

    def relative(self, name: str, family: Mapping[str, Weight]) -> Weight | None:
        """The weight of another name in a family, if this one is in it too."""
        return family.get(name) if family.get(self.name) is self else None

    def __getstate__(self) -> dict[str, Any]:
        """All but the family, which a copy, of a weight or of a whole tree, is not in."""
        return {key: value for key, value in vars(self).items() if key != "family"}


class DerivedWeight(Weight):
    """A weight that ``compute`` gives when its data is asked for; no state lists it."""

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        compute: Callable[[], np.ndarray[Any, Any]],
        device: DeviceRef | None = None,
    ) -> None:
        super().__init__(name, dtype, shape, device)
        self._compute = compute
        self._elsewhere: dict[DeviceRef, DerivedWeight] = {}

    def on(self, device: DeviceRef) -> DerivedWeight:
        """The same on a device: itself if it is there, else one by a name of its own."""
        if device == self.device:
            return self
        if device not in self._elsewhere:
            name = f"{self.name}@{device.name}"
            weight = DerivedWeight(name, self.dtype, self.shape, self._compute, device)
            self._elsewhere[device] = weight
        return self._elsewhere[device]

    @property
    def is_bound(self) -> bool:
        """Return True: a derived weight always has data."""
        return True

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, computed anew."""
        return self._compute()


class Shard(DerivedWeight):
    """One device's part of a weight: shape, name and data, computed from the weight's on demand."""

    def __init__(
        self, whole: Weight, strategy: ShardingStrategy, index: int, device: DeviceRef
    ) -> None:
        self.graph, self._data = None, None
        self.whole, self.index = whole, index
        self.sharding_strategy = None
        self._strategy, self._on = strategy, device

    @property
    def part(self) -> WeightPart:
        """The part of the weight."""
        return WeightPart(self.whole.name, self._strategy, self.index)

    @property
    def axis(self) -> int | None:
        """The dimension that is split; None where every device has the whole."""
        return self._strategy.axis

    @property
    def bounds(self) -> tuple[int, int]:
        """First element and end of the part along the split dimension."""
        whole = self._checked()
        return self._strategy.bounds(list(whole.shape), self.index, whole.quantization_encoding)

    @property
    def type(self) -> TensorType:  # type: ignore[override]  # it follows the whole weight
        """Element type, shape and device: what the strategy gives of the whole weight's."""
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
        """Block encoding: that of the whole weight."""
        return self.whole.quantization_encoding

    @property
    def is_bound(self) -> bool:
        """Return whether the whole weight has data."""
        return self.whole.is_bound

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Return the part's data, not copied."""
        whole = self._checked()
        data, shape = whole.to_numpy(), whole.shape.static()
        whole_data = WeightData(data, whole.name, whole.dtype, shape, whole.quantization_encoding)
        return self._strategy.cut(whole_data, self.index).data

    def _checked(self) -> Weight:
        """The whole weight, which may have been changed since it was split."""
        _require(self.whole, self._strategy)
        return self.whole


def split(weight: Weight, devices: tuple[DeviceRef, ...]) -> tuple[Shard, ...]:
    """The parts of a weight on these devices, which are as many as its sharding strategy says."""
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
    """The part of a weight on a device, which must have one."""
    for shard in weight.shards:
        if shard.device == device:
            return shard
    names = ", ".join(shard.device.name for shard in weight.shards)
    where = f"its parts are on {names}" if names else "it is not split"
    raise ValueError(f"weight {weight.name!r} has no part on {device.name}: {where}")


def _require(weight: Weight, strategy: ShardingStrategy) -> None:
    if problem := strategy.problem(weight.shape, weight.quantization_encoding):
        raise ValueError(f"weight {weight.name!r}: {problem}")
