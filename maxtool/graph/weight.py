"""``Weight``: a tensor with a name and a declared type, whose data may come later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import MissingWeight
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Shape, ShapeLike
from maxtool.graph.sharding import ShardingStrategy
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType
from maxtool.quantization import QuantizationEncoding, dequantize
from maxtool.weights.view import AllocatedWeight

if TYPE_CHECKING:
    from maxtool.graph.shard import Shard

Family: TypeAlias = "Callable[[], Mapping[str, Weight]]"


def alone() -> Mapping[str, Weight]:
    """The family of a weight that no tree of modules has named."""
    return {}


class Weight(Tensor):
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
    """

    name: str
    family: Family = staticmethod(alone)

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
        self._set(TensorType(dtype, shape, device), None)
        self._data = None
        self._value: object = None
        self._declared = self.type.shape
        self.local_name = name
        self.name = name
        self.quantization_encoding = quantization_encoding
        self.align = align
        self.sharding_strategy = sharding_strategy

    @classmethod
    def of(cls, allocated: AllocatedWeight) -> Weight:
        """The weight that the view of a checkpoint allocated, with its data.

        Raises:
            ValueError: If its device is neither a device nor the name of one, such as ``gpu:0``.
        """
        device = DeviceRef.named(allocated.device)
        shape, encoding = allocated.shape, allocated.quantization_encoding
        weight = cls(allocated.name, allocated.dtype, shape, device, encoding, align=1)
        if allocated.data is not None:
            weight.bind(allocated.data)
        return weight

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @dtype.setter
    def dtype(self, dtype: DType) -> None:
        self.type = TensorType(dtype, self.shape, self.device)

    @property
    def shape(self) -> Shape:
        """The dimensions, slowest first; symbolic ones have the sizes of the data once there is."""
        return self.type.shape

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        self.type = TensorType(self.dtype, shape, self.device)
        self._declared = self.type.shape

    @property
    def declared_shape(self) -> Shape:
        """The dimensions as they were declared."""
        return self._declared

    @property
    def device(self) -> DeviceRef:
        """Where the operations that use it find it."""
        return self.type.device

    @device.setter
    def device(self, device: DeviceRef) -> None:
        self.type = TensorType(self.dtype, self.shape, device)

    @property
    def is_bound(self) -> bool:
        """Whether it has data."""
        return self._data is not None

    @property
    def value(self) -> object:
        """What the data was given as: an array, a tensor, or something else with ``__dlpack__``."""
        return self._value

    def bind(
        self,
        data: np.ndarray[Any, Any],
        value: object = None,
        shape: ShapeLike | None = None,
    ) -> None:
        """Give it data, which is kept and not copied. Checks are the caller's.

        Args:
            data: The elements, or the bytes of its blocks.
            value: What they were given as, if not so.
            shape: The sizes of symbolic dimensions too.
        """
        self._data, self._value = data, data if value is None else value
        if shape is not None:
            self.type = TensorType(self.dtype, shape, self.device)

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, not copied.

        Raises:
            MissingWeight: If it has none yet.
        """
        if self._data is None:
            raise MissingWeight(f"weight {self.name!r} has no data yet", hint="load a state first")
        return self._data

    @property
    def sharding_strategy(self) -> ShardingStrategy | None:
        """How :meth:`shard` splits it, if it does."""
        return self._sharding

    @sharding_strategy.setter
    def sharding_strategy(self, strategy: ShardingStrategy | None) -> None:
        self._sharding = strategy
        self._shards: tuple[Shard, ...] = ()

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Its parts on the devices that it was last split over."""
        return self._shards

    def place(self, devices: Sequence[DeviceRef], strategy: ShardingStrategy | None) -> None:
        """Put it on the first device, and, with a strategy, its parts on all of them.

        Raises:
            ValueError: If it cannot be split so.
        """
        self.device, self.sharding_strategy = devices[0], strategy
        if strategy is not None:
            self.shard(devices)

    @overload
    def shard(self, devices: DeviceRef) -> Shard: ...
    @overload
    def shard(self, devices: Iterable[DeviceRef]) -> list[Shard]: ...
    def shard(self, devices: DeviceRef | Iterable[DeviceRef]) -> Shard | list[Shard]:
        """Its part on one of the devices that it is split over, or its parts on all devices given.

        Raises:
            ValueError: If it has no sharding strategy, which says how many devices there are, it
                cannot be split so, or has no part on that device.
        """
        from maxtool.graph.shard import split, the_one_on

        if isinstance(devices, DeviceRef):
            return the_one_on(devices, self)
        given = tuple(devices)
        if given != tuple(shard.device for shard in self._shards):
            self._shards = split(self, given)
        return list(self._shards)

    def relative(self, name: str, family: Mapping[str, Weight]) -> Weight | None:
        """The weight of another name in a family, if this one is in it too."""
        return family.get(name) if family.get(self.name) is self else None

    def __getstate__(self) -> dict[str, Any]:
        """All but the family, which a copy, of a weight or of a whole tree, is not in."""
        return {key: value for key, value in vars(self).items() if key != "family"}

    def elements(self) -> np.ndarray[Any, Any]:
        """The data, decoded if it is quantized, else not copied.

        Raises:
            MissingWeight: If it has none yet.
        """
        data, encoding = self.to_numpy(), self.quantization_encoding
        return data if encoding is None else dequantize(data, encoding, tensor=self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type})"


class DerivedWeight(Weight):
    """A weight that a formula gives, computed when its data is asked for.

    Args:
        name: Its name in the graphs that use it; no state lists it.
        dtype: The element type.
        shape: Sizes, slowest first.
        compute: Gives the data, of that type and shape.
        device: Where the operations that use it find it.
    """

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
            made = DerivedWeight(name, self.dtype, self.shape, self._compute, device)
            self._elsewhere[device] = made
        return self._elsewhere[device]

    @property
    def is_bound(self) -> bool:
        """Always: it has data when it is asked for."""
        return True

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, computed anew."""
        return self._compute()
