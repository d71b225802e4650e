"""Initializers: small ones are known while the model is imported, others are weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight
from maxtool.graph.dim import ShapeLike
from maxtool.importers.onnx.limits import KNOWN_ELEMENTS
from maxtool.importers.onnx.values import known
from maxtool.weights import Checkpoint, TensorInfo

Array: TypeAlias = np.ndarray[Any, Any]


class ModelWeight(Weight):
    """A weight of a model, of which matrices are taken that are weights as well."""

    def __init__(self, name: str, dtype: DType, shape: ShapeLike) -> None:
        super().__init__(name, dtype, shape)
        self._taken: dict[str, ModelWeight] = {}

    def turned(self) -> ModelWeight:
        """A matrix ``[terms, features]`` as ``[features, terms]``, as products read it."""
        return self._take("T", [*self.shape][::-1], lambda elements: elements.T)

    def part(self, at: int) -> ModelWeight:
        """One of the tensors that are stacked in this one."""
        return self._take(str(at), self.shape[1:], lambda elements: elements[at])

    def derived(
        self, label: str, shape: ShapeLike, dtype: DType, how: Callable[[Array], Array]
    ) -> ModelWeight:
        """A weight of that label that follows from this one: each time the same one."""
        if label not in self._taken:
            self._taken[label] = TakenWeight(f"{self.name}.{label}", dtype, shape, self, how)
        return self._taken[label]

    def _take(self, label: str, shape: ShapeLike, how: Callable[[Array], Array]) -> ModelWeight:
        return self.derived(label, shape, self.dtype, how)


class TakenWeight(ModelWeight):
    """A weight that follows from another one, such as its elements in an order of their own."""

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        whole: ModelWeight,
        how: Callable[[Array], Array],
    ) -> None:
        super().__init__(name, dtype, shape)
        self._whole, self._how = whole, how

    def to_numpy(self) -> Array:
        """Read the elements."""
        return self._how(self._whole.to_numpy())


class InitializerWeight(ModelWeight):
    """A weight whose elements are read from the checkpoint when they are asked for."""

    def __init__(self, checkpoint: Checkpoint, info: TensorInfo) -> None:
        super().__init__(info.name, info.dtype, info.shape)
        self._checkpoint = checkpoint

    def to_numpy(self) -> Array:
        """Read the elements."""
        return self._checkpoint.read(self.name).data


class ConstantWeight(ModelWeight):
    """A weight whose elements a node has."""

    def __init__(self, name: str, elements: Array) -> None:
        super().__init__(name, DType.from_numpy(elements.dtype), elements.shape)
        self._elements = elements

    def to_numpy(self) -> Array:
        """The elements."""
        return self._elements


class Initializers:
    """The initializers of a checkpoint as values, each made once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._made: dict[str, Tensor] = {}

    def find(self, prefix: str, name: str) -> Tensor | None:
        """The initializer of a name in the graph with that prefix; None if there is none."""
        full = prefix + name
        if full not in self._made:
            info = self._checkpoint.tensors.get(full)
            if info is None:
                return None
            self._made[full] = self._value(info)
        return self._made[full]

    def _value(self, info: TensorInfo) -> Tensor:
        if prod(info.shape) <= KNOWN_ELEMENTS:
            return known(self._checkpoint.read(info.name).data)
        return InitializerWeight(self._checkpoint, info)
