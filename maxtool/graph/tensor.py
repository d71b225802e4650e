"""``Tensor``: one class for a value that is here and for a value that a graph will compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from maxtool.dtype import DType
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import DimLike, Shape, ShapeLike
from maxtool.graph.operators import Operators
from maxtool.graph.type import BufferType, TensorType

if TYPE_CHECKING:
    from maxtool.graph.graph import Graph

TensorLike: TypeAlias = "Tensor | npt.ArrayLike"
Index: TypeAlias = "SupportsIndex | slice | tuple[SupportsIndex | slice, ...]"


class Tensor(Operators):
    """A tensor that holds data, or stands for a value of a graph being traced.

    Args:
        data: An array, a (nested) sequence of numbers or a number. Arrays are kept, not copied.
        dtype: The element type; that of an array when absent, float32 for Python's numbers.
        device: Where it lives; the host when absent.
    """

    type: TensorType
    graph: Graph | None

    # NumPy's operators leave the work to ours: np.float32(2) * tensor is a Tensor.
    __array_priority__ = 1000

    def __init__(
        self, data: npt.ArrayLike, dtype: DType | None = None, device: DeviceRef | None = None
    ) -> None:
        array = np.asarray(data)
        if dtype is None and not isinstance(data, np.ndarray | np.generic):
            dtype = DType.float32 if array.dtype.kind in "iuf" else None
        if dtype is not None:
            array = array.astype(dtype.to_numpy(), copy=False)
        self._set(TensorType(DType.from_numpy(array.dtype), array.shape, device), None)
        self._data: np.ndarray[Any, Any] | None = array

    @classmethod
    def traced(cls, type: TensorType, graph: Graph) -> Tensor:  # noqa: A002 - the field's name
        """A value of ``graph``, not known until the graph runs."""
        tensor = cls.__new__(cls)
        tensor._set(type, graph)
        tensor._data = None
        return tensor

    @classmethod
    def natural(cls, data: npt.ArrayLike, device: DeviceRef | None = None) -> Tensor:
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
    ) -> Tensor:
        """A tensor of one value."""
        return cls(np.full(Shape(shape).static(), value, dtype.to_numpy()), device=device)

    @classmethod
    def zeros(
        cls, shape: ShapeLike, dtype: DType = DType.float32, device: DeviceRef | None = None
    ) -> Tensor:
        """A tensor of zeros."""
        return cls.full(shape, 0, dtype=dtype, device=device)

    @classmethod
    def ones(
        cls, shape: ShapeLike, dtype: DType = DType.float32, device: DeviceRef | None = None
    ) -> Tensor:
        """A tensor of ones."""
        return cls.full(shape, 1, dtype=dtype, device=device)

    @classmethod
    def constant(
        cls,
        value: npt.ArrayLike,
        dtype: DType | None = None,
        device: DeviceRef | None = None,
    ) -> Tensor:
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
    ) -> Tensor:
        """Numbers from ``start`` (0 with one argument) up to, and without, ``stop``."""
        first, end = (0, start) if stop is None else (start, stop)
        return cls(np.arange(first, end, step).astype(dtype.to_numpy()), device=device)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> Tensor:
        """A tensor over the memory of an array."""
        return cls(array)

    @classmethod
    def from_dlpack(cls, array: Any) -> Tensor:  # noqa: ANN401 - a protocol
        """A tensor over the memory of anything with ``__dlpack__`` that lies on the host.

        Raises:
            BufferError: If it lies elsewhere, or NumPy has no such type.
        """
        return cls(array if isinstance(array, np.ndarray) else np.from_dlpack(array))

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
        """How many dimensions there are."""
        return self.type.rank

    @property
    def device(self) -> DeviceRef:
        """Where the tensor lives."""
        return self.type.device

    @property
    def is_traced(self) -> bool:
        """Whether this stands for a value of a graph rather than holding data."""
        return self.graph is not None

    def num_elements(self) -> int:
        """The number of elements.

        Raises:
            TypeError: If a dimension is symbolic.
        """
        return int(np.prod(self.shape.static(), dtype=np.int64))

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, not copied.

        Raises:
            TypeError: If this is a value of a graph, which has none until the graph runs.
        """
        if self._data is None:
            raise TypeError(f"{self!r} has no data: it is computed when the graph runs")
        return self._data

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - the protocol's types
        return self.to_numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.to_numpy().__dlpack_device__()

    def __bool__(self) -> bool:
        if self.is_traced:
            raise TypeError(
                f"{self!r} is computed when the graph runs: tracing cannot take a branch on it"
            )
        return bool(self.to_numpy())

    def item(self) -> float | int | bool:
        """The one element as a Python number.

        Raises:
            ValueError: If there are several.
        """
        number: float | int | bool = self.to_numpy().item()
        return number

    def __len__(self) -> int:
        if not self.rank:
            raise TypeError("a tensor of rank 0 has no length")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        if self._data is None:
            return f"Tensor(traced, {self.type})"
        return f"Tensor({np.array2string(self._data, threshold=20, precision=4)}, {self.type})"

    def __getitem__(self, index: Index) -> Tensor:
        from maxtool.graph import ops

        return ops.slice_tensor(self, index)

    @property
    def T(self) -> Tensor:  # noqa: N802 - the field's name
        """The last two dimensions swapped."""
        from maxtool.graph import ops

        return ops.transpose(self, -1, -2)

    def reshape(self, shape: Sequence[DimLike]) -> Tensor:
        """The same elements in another shape."""
        from maxtool.graph import ops

        return ops.reshape(self, shape)

    def permute(self, dims: Sequence[SupportsIndex]) -> Tensor:
        """The dimensions in another order."""
        from maxtool.graph import ops

        return ops.permute(self, [int(dim) for dim in dims])

    def cast(self, dtype: DType) -> Tensor:
        """The same elements in another type."""
        from maxtool.graph import ops

        return ops.cast(self, dtype)

    def clip(self, *, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:  # noqa: A002 - the reference API's names
        """The elements, at least ``min`` and at most ``max``, where these are given."""
        from maxtool.graph import ops

        return ops.clamp(self, min, max)

    def to(self, device: DeviceRef) -> Tensor:
        """The same elements on another device."""
        from maxtool.graph import ops

        return ops.transfer_to(self, device)

    def print(self, label: str = "debug_tensor") -> None:
        """Print it with a label: now, or when the graph runs and comes to this place."""
        from maxtool.graph import ops

        ops.print(self, label)

    @property
    def tensor(self) -> Tensor:
        """This value; what graphs and calls hand out is asked for its tensor elsewhere."""
        return self

    @property
    def buffer(self) -> Tensor:
        """This value, which may be written in place.

        Raises:
            TypeError: If it may not.
        """
        if not isinstance(self.type, BufferType):
            raise TypeError(f"{self!r} is no buffer")
        return self

    def _set(self, type: TensorType, graph: Graph | None) -> None:  # noqa: A002
        self.type = type
        self.graph = graph
