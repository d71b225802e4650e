"""Splitting of a weight over several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maxtool.graph.dim import DimLike, Shape
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.weight_data import WeightData


@dataclass(frozen=True, slots=True)
class ShardingStrategy:
    """Split of a weight: along which dimension, over how many devices.

    Sizes need not be divisible: the first devices have one more then. A quantized weight is split
    between blocks along its last dimension.

    Args:
        num_devices: How many devices there are.
        axis: The dimension to split, counted from 0; ``None`` gives every device the whole weight.
        is_tensor_parallel: Whether each layer says how its own weights are split.

    Raises:
        ValueError: If there is no device, or the dimension is negative.
    """

    num_devices: int
    axis: int | None = None
    is_tensor_parallel: bool = False

    def __post_init__(self) -> None:
        if self.num_devices < 1:
            raise ValueError(f"a weight is split over at least one device, not {self.num_devices}")
        if self.axis is not None and self.axis < 0:
            raise ValueError(f"dimensions are counted from 0: there is no {self.axis}")

    @staticmethod
    def rowwise(num_devices: int) -> ShardingStrategy:
        """Split the first dimension: the outputs of a ``Linear``, the entries of a table."""
        return ShardingStrategy(num_devices, 0)

    @staticmethod
    def columnwise(num_devices: int) -> ShardingStrategy:
        """Split the second dimension: the inputs of a ``Linear``, the width of a table."""
        return ShardingStrategy(num_devices, 1)

    @staticmethod
    def axiswise(axis: int, num_devices: int) -> ShardingStrategy:
        """Split the dimension ``axis``."""
        return ShardingStrategy(num_devices, axis)

    @staticmethod
    def replicate(num_devices: int) -> ShardingStrategy:
        """Copy the whole weight to every device."""
        return ShardingStrategy(num_devices)

    @staticmethod
    def tensor_parallel(num_devices: int) -> ShardingStrategy:
        """Split each weight as its layer says; whole everywhere where it says nothing.

        Of a transformer, every device has some of the heads and some of the units of the MLPs
        (Shoeybi et al. 2019, Megatron-LM).
        """
        return ShardingStrategy(num_devices, None, is_tensor_parallel=True)

    @property
    def is_rowwise(self) -> bool:
        """Return whether the first dimension is split."""
        return self.axis == 0

    @property
    def is_colwise(self) -> bool:
        """Return whether the second dimension is split."""
        return self.axis == 1

    @property
    def is_replicate(self) -> bool:
        """Return whether every device has the whole weight."""
        return self.axis is None

    def problem(self, shape: Shape, encoding: QuantizationEncoding | None = None) -> str:
        """Return the reason why a weight cannot be split so; empty if it can."""
        if self.axis is None:
            return ""
        if self.axis >= shape.rank:
            return f"there is no dimension {self.axis} in {shape}"
        size, unit = shape[self.axis], self.unit(shape.rank, encoding)
        if not size.is_static:
            return f"dimension {self.axis} of {shape} is not known"
        if int(size) // unit < self.num_devices or int(size) % unit:
            what = f"{size} elements" + (f" in blocks of {unit}" if unit > 1 else "")
            return f"{what} along dimension {self.axis} do not divide into {self.num_devices} parts"
        return ""

    def bounds(
        self, shape: Sequence[DimLike], index: int, encoding: QuantizationEncoding | None = None
    ) -> tuple[int, int]:
        """Return first element and end of device ``index`` along the split dimension.

        A weight that cannot be split so is a ``ValueError``, as in all of these.
        """
        dims = Shape(shape)
        if problem := self.problem(dims, encoding):
            raise ValueError(problem)
        if self.axis is None:
            raise ValueError("a weight that every device has whole is not split")
        unit = self.unit(dims.rank, encoding)
        least, rest = divmod(int(dims[self.axis]) // unit, self.num_devices)
        start = index * least + min(index, rest)
        return start * unit, (start + least + (index < rest)) * unit

    def shape_of(
        self, shape: Shape, index: int, encoding: QuantizationEncoding | None = None
    ) -> Shape:
        """The shape of what device ``index`` has of a weight of that shape."""
        if self.axis is None:
            return shape
        start, end = self.bounds(shape, index, encoding)
        return Shape([*shape[: self.axis], end - start, *shape[self.axis + 1 :]])

    def cut(self, data: WeightData, index: int) -> WeightData:
        """Return the part of a weight's data for device ``index``, not copied."""
        encoding = data.quantization_encoding
        if self.axis is None:
            return data
        start, end = self.bounds(data.shape, index, encoding)
        shape = self.shape_of(Shape(data.shape), index, encoding).static()
        if encoding is not None and self.axis == len(data.shape) - 1:
            start, end = encoding.row_bytes(start), encoding.row_bytes(end)
        array = data.data[(slice(None),) * self.axis + (slice(start, end),)]
        return WeightData(array, data.name, data.dtype, shape, encoding)

    def unit(self, rank: int, encoding: QuantizationEncoding | None) -> int:
        """The elements that stay together along the dimension that is split."""
        return encoding.elements_per_block if encoding and self.axis == rank - 1 else 1


@dataclass(frozen=True, slots=True)
class WeightPart:
    """The part of the weight named ``whole`` on device ``index``; graphs know weights by name."""

    whole: str
    strategy: ShardingStrategy
    index: int
