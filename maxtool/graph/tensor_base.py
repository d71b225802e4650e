"""``TensorBase``: what a tensor is, and its elements; :class:`.tensor.Tensor` computes with it."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from maxtool.dtype import DType
from maxtool.graph import dlpack
from maxtool.graph.accelerator_array import AcceleratorArray
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Shape, ShapeLike
from maxtool.graph.type import BufferType, TensorType


class Recorder(Protocol):
    """A graph, as the values that it records know it."""

    name: str


class TensorBase:
    """Type, device and elements of a tensor; arguments as for :class:`.tensor.Tensor`."""

    type: TensorType
    graph: Recorder | None
    # The elements in the memory of an accelerator, if they are there.
    device_array: AcceleratorArray | None = None

    # NumPy's operators leave the work to ours: np.float32(2) * tensor is a Tensor.
    __array_priority__ = 1000

    def __init__(
        self, data: npt.ArrayLike, dtype: DType | None = None, device: DeviceRef | None = None
    ) -> None:
        array = np.asarray(data)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if dtype is not None and array is not data:
            _require_range(array, dtype)
        if dtype is None and not isinstance(data, np.ndarray | np.generic):
            dtype = DType.float32 if array.dtype.kind in "iuf" else None
        if dtype is not None:
            array = array.astype(dtype.to_numpy(), copy=False)
        self.type, self.graph = _type_of(array.dtype, array.shape, device), None
        self._data: np.ndarray[Any, Any] | None = array

    @classmethod
    def traced(cls, type: TensorType, graph: Recorder) -> Self:  # noqa: A002 - the field's name
        """A value of ``graph``, not known until the graph runs."""
        tensor = cls.__new__(cls)
        tensor.type, tensor.graph, tensor._data = type, graph, None
        return tensor

    @classmethod
    def holding(cls, type: TensorType, array: np.ndarray[Any, Any]) -> Self:  # noqa: A002
        """A tensor of that type over the memory of an array, which has its elements."""
        tensor = cls.__new__(cls)
        tensor.type, tensor.graph, tensor._data = type, None, array
        return tensor

    @classmethod
    def on_accelerator(cls, type: TensorType, device_array: AcceleratorArray) -> Self:  # noqa: A002
        """A tensor of that type whose elements are in the memory of an accelerator."""
        tensor = cls.__new__(cls)
        tensor.type, tensor.graph = type, None
        tensor.settle(device_array)
        return tensor

    def settle(self, device_array: AcceleratorArray) -> None:
        """Take the elements from the memory of an accelerator, where they are now."""
        self._data, self.device_array = None, device_array

    @classmethod
    def natural(cls, data: npt.ArrayLike, device: DeviceRef | None = None) -> Self:
        """A tensor of the numbers' own kind: Python's whole numbers are int64, others float32."""
        whole = (
            not isinstance(data, np.ndarray | np.generic) and np.asarray(data).dtype.kind in "iu"
        )
        return cls(data, DType.int64 if whole else None, device)

    @classmethod
    def full(
        cls,
        shape: ShapeLike,
        value: float,
        *,
        dtype: DType = DType.float32,
        device: DeviceRef | None = None,
    ) -> Self:
        """A tensor of one value."""
        return cls(np.full(Shape(shape).static(), value, dtype.to_numpy()), device=device)

    @classmethod
    def zeros(
        cls, shape: ShapeLike, dtype: DType = DType.float32, device: DeviceRef | None = None
    ) -> Self:
        """A tensor of zeros."""
        return cls.full(shape, 0, dtype=dtype, device=device)

    @classmethod
    def ones(
        cls, shape: ShapeLike, dtype: DType = DType.float32, device: DeviceRef | None = None
    ) -> Self:
        """A tensor of ones."""
        return cls.full(shape, 1, dtype=dtype, device=device)

    @classmethod
    def full_like(cls, like: TensorBase, value: float) -> Self:
        """A tensor of one value, of the shape, type and device of another."""
        return cls.full(like.shape, value, dtype=like.dtype, device=like.device)

    @classmethod
    def zeros_like(cls, like: TensorBase) -> Self:
        """A tensor of zeros, of the shape, type and device of another."""
        return cls.full_like(like, 0)

    @classmethod
    def ones_like(cls, like: TensorBase) -> Self:
        """A tensor of ones, of the shape, type and device of another."""
        return cls.full_like(like, 1)

    @classmethod
    def constant(
        cls, value: npt.ArrayLike, dtype: DType | None = None, device: DeviceRef | None = None
    ) -> Self:
        """A tensor of the numbers given, copied. Python numbers are float32 unless said."""
        return cls(np.array(value) if isinstance(value, np.ndarray) else value, dtype, device)

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: DType = DType.float32,
        device: DeviceRef | None = None,
    ) -> Self:
        """Numbers from ``start`` (0 with one argument) up to, and without, ``stop``."""
        first, end = (0, start) if stop is None else (start, stop)
        return cls(np.arange(first, end, step).astype(dtype.to_numpy()), device=device)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> Self:
        """A tensor over the memory of an array."""
        return cls(array)

    @classmethod
    def from_dlpack(cls, array: Any) -> Self:  # noqa: ANN401 - a protocol
        """A tensor over the memory of anything with ``__dlpack__`` that lies on the host.

        A ``BufferError`` if it lies elsewhere, or there is no such ``DType``.
        """
        return cls(array if isinstance(array, np.ndarray) else dlpack.load(array))

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The dimensions, slowest first."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.type.rank

    @property
    def device(self) -> DeviceRef:
        """Device of the tensor."""
        return self.type.device

    @property
    def is_traced(self) -> bool:
        """Return whether this stands for a value of a graph rather than holding data."""
        return self.graph is not None

    def num_elements(self) -> int:
        """The number of elements; a ``TypeError`` if a dimension is symbolic."""
        return int(np.prod(self.shape.static(), dtype=np.int64))

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data: not copied, unless it is in the memory of an accelerator.

        A value of a graph has none until the graph runs: a ``TypeError``.
        """
        if self.device_array is not None:
            return self.device_array.to_numpy()
        if self._data is None:
            raise TypeError(f"{self!r} has no data: it is computed when the graph runs")
        return self._data

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - the protocol's types
        if self.device_array is not None:
            return self.device_array.__dlpack__(**options)
        return dlpack.export(self.to_numpy(), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device_array is not None:
            return self.device_array.__dlpack_device__()
        return (1, 0)  # kDLCPU

    def __bool__(self) -> bool:
        if self.is_traced:
            raise TypeError(
                f"{self!r} is computed when the graph runs: tracing cannot take a branch on it"
            )
        if self.num_elements() != 1:
            raise ValueError(f"{self.type} is neither true nor false; ask any or all of it")
        return bool(self.to_numpy().item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integral() or self.rank:
            raise TypeError(f"{self.type} is not an index; only one whole number is")
        return int(self.item())

    def item(self) -> float | int | bool:
        """The one element as a Python number; a ``ValueError`` if there are several."""
        number: float | int | bool = self.to_numpy().item()
        return number

    def __len__(self) -> int:
        if not self.rank:
            raise TypeError("a tensor of rank 0 has no length")
        return int(self.shape[0])

    def __repr__(self) -> str:
        if self.is_traced:
            return f"Tensor(traced, {self.type})"
        return f"Tensor({np.array2string(self.to_numpy(), threshold=20, precision=4)}, {self.type})"

    @property
    def tensor(self) -> Self:
        """The value itself; other values of graphs and calls return their tensor here."""
        return self

    @property
    def buffer(self) -> Self:
        """The value itself, if it is a buffer that may be written in place, or a ``TypeError``."""
        if not isinstance(self.type, BufferType):
            raise TypeError(f"{self!r} is not a buffer")
        return self


@lru_cache(maxsize=1024, typed=True)  # a device and its name are equal, and are shown as given
def _type_of(dtype: np.dtype[Any], shape: tuple[int, ...], device: DeviceRef | None) -> TensorType:
    """The type of an array: of equal ones the same, which operations then soon recognise."""
    return TensorType(DType.from_numpy(dtype), shape, device)


def _require_range(numbers: np.ndarray[Any, Any], dtype: DType) -> None:
    """Refuse whole numbers that would wrap around in another type of such."""
    if not dtype.is_integral() or numbers.dtype.kind not in "iu" or not numbers.size:
        return
    smallest, largest = _limits(dtype)
    ends = (numbers.item(),) if not numbers.ndim else (int(numbers.min()), int(numbers.max()))
    for number in ends:
        if not smallest <= number <= largest:
            raise ValueError(f"{dtype.value} has the numbers {smallest} to {largest}, not {number}")


@cache
def _limits(dtype: DType) -> tuple[int, int]:
    limits = np.iinfo(dtype.to_numpy())
    return int(limits.min), int(limits.max)
