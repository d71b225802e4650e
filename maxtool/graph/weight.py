"""``Weight``: a tensor with a name and a declared type, whose data may come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import MissingWeight
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Shape, ShapeLike
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType
from maxtool.quantization import QuantizationEncoding


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
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        device: DeviceRef | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        align: int | None = None,
    ) -> None:
        self._set(TensorType(dtype, shape, device), None)
        self._data = None
        self.local_name = name
        self.name = name
        self.quantization_encoding = quantization_encoding
        self.align = align

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @dtype.setter
    def dtype(self, dtype: DType) -> None:
        self.type = TensorType(dtype, self.shape, self.device)

    @property
    def shape(self) -> Shape:
        """The dimensions, slowest first."""
        return self.type.shape

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        self.type = TensorType(self.dtype, shape, self.device)

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

    def bind(self, data: np.ndarray[Any, Any] | None) -> None:
        """Give it data, which is kept and not copied, or take it away. Checks are the caller's."""
        self._data = data

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, not copied.

        Raises:
            MissingWeight: If it has none yet.
        """
        if self._data is None:
            raise MissingWeight(f"weight {self.name!r} has no data yet", hint="load a state first")
        return self._data

    def __repr__(self) -> str:
        return f"Weight({self.name!r}, {self.type})"


class DerivedWeight(Weight):
    """A weight that a formula gives, computed when its data is asked for.

    Args:
        name: Its name in the graphs that use it; no state lists it.
        dtype: The element type.
        shape: Sizes, slowest first.
        compute: Gives the data, of that type and shape.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        compute: Callable[[], np.ndarray[Any, Any]],
    ) -> None:
        super().__init__(name, dtype, shape)
        self._compute = compute

    @property
    def is_bound(self) -> bool:
        """Always: it has data when it is asked for."""
        return True

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, computed anew."""
        return self._compute()
