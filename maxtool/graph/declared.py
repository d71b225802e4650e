"""Tensors that are declared first, and whose data may come later."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import MissingWeight
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Shape, ShapeLike
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType
from maxtool.quantization import QuantizationEncoding, dequantize


class DeclaredTensor(Tensor):
    """Base of :class:`.weight.Weight`: a name, a declared type, and the data once there is."""

    name: str

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        device: DeviceRef | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        align: int | None = None,
    ) -> None:
        self.type, self.graph, self._data = TensorType(dtype, shape, device), None, None
        self._value: object = None
        self._declared = self.type.shape
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
        """Device of the operations that use it."""
        return self.type.device

    @device.setter
    def device(self, device: DeviceRef) -> None:
        self.type = TensorType(self.dtype, self.shape, device)

    @property
    def is_bound(self) -> bool:
        """Return whether it has data."""
        return self._data is not None

    @property
    def value(self) -> object:
        """The data as it was set: an array, a tensor, or another object with ``__dlpack__``."""
        return self._value

    def bind(
        self, data: np.ndarray[Any, Any], value: object = None, shape: ShapeLike | None = None
    ) -> None:
        """Attach data, which is kept and not copied. The caller checks it.

        ``value`` is what it was given as, if not so; ``shape`` has sizes for symbolic dimensions.
        """
        self._data, self._value = data, data if value is None else value
        if shape is not None:
            self.type = TensorType(self.dtype, shape, self.device)

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, not copied; a :class:`MissingWeight` if it has none yet."""
        if self._data is None:
            raise MissingWeight(f"weight {self.name!r} has no data yet", hint="load a state first")
        return self._data

    def elements(self) -> np.ndarray[Any, Any]:
        """The data, decoded if it is quantized, else not copied."""
        data, encoding = self.to_numpy(), self.quantization_encoding
        return data if encoding is None else dequantize(data, encoding, tensor=self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type})"
