"""The types of graph values."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import GenericAlias

from maxtool.dtype import DType
from maxtool.graph.device import CPU, DeviceRef
from maxtool.graph.dim import Shape, ShapeLike

HOST = DeviceRef.CPU()


class Type:
    """Base class of the types of graph values; ``Type[...]`` is for annotations."""

    __slots__ = ()

    def __class_getitem__(cls, item: object) -> GenericAlias:
        return GenericAlias(cls, item)


@dataclass(frozen=True, slots=True, init=False)
class TensorType(Type):
    """Element type, shape and device of a tensor.

    Args:
        dtype: The element type.
        shape: Sizes and symbolic names, slowest dimension first.
        device: Where it lives, by name or as a device; the host unless said otherwise.

    Raises:
        TypeError: If the device is neither.
    """

    dtype: DType
    shape: Shape
    device: DeviceRef

    def __init__(self, dtype: DType, shape: ShapeLike, device: DeviceRef | None = None) -> None:
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape if isinstance(shape, Shape) else Shape(shape))
        object.__setattr__(self, "device", _device(device))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.shape.rank

    def __str__(self) -> str:
        location = "" if self.device == HOST else f" on {self.device.name}"
        return f"{self.dtype.value}{self.shape!r}{location}"


def _device(device_ref: DeviceRef | None) -> DeviceRef:
    if device_ref is None:
        return CPU()
    if not isinstance(device_ref, DeviceRef):
        type_name = type(device_ref).__name__
        raise TypeError(f"a device is a Device or a DeviceRef such as CPU(), not a {type_name}")
    return device_ref


class BufferType(TensorType):
    """A tensor that an operation may write in place, such as a key/value cache."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"buffer {TensorType.__str__(self)}"


def plain_names(types: Iterable[TensorType]) -> set[str]:
    """The names that are dimensions by themselves, from which a call tells their sizes."""
    return {dim.value for type_ in types for dim in type_.shape if isinstance(dim.value, str)}


def unknown_name(types: Iterable[TensorType], known: Collection[str]) -> str | None:
    """The first name in a dimension of the types that is not known; None if all are."""
    names = (name for type_ in types for dim in type_.shape for name in dim.names())
    return next((name for name in names if name not in known), None)
