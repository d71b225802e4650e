"""Initializers: small ones are known while the model is imported, others are weights."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from maxtool.graph import Tensor, Weight
from maxtool.importers.onnx.limits import KNOWN_ELEMENTS
from maxtool.importers.onnx.values import known
from maxtool.weights import Checkpoint, TensorInfo


class InitializerWeight(Weight):
    """A weight whose elements are read from the checkpoint when they are asked for."""

    def __init__(self, checkpoint: Checkpoint, info: TensorInfo) -> None:
        super().__init__(info.name, info.dtype, info.shape)
        self._checkpoint = checkpoint
        self._turned: Weight | None = None

    def turned(self) -> Weight:
        """The matrix with its dimensions swapped, as a weight of its own: each time the same."""
        if self._turned is None:
            self._turned = TurnedWeight(self)
        return self._turned

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Read the elements."""
        return self._checkpoint.read(self.name).data


class TurnedWeight(Weight):
    """A matrix ``[terms, features]`` as ``[features, terms]``, as kernels of products read it."""

    def __init__(self, matrix: InitializerWeight) -> None:
        super().__init__(f"{matrix.name}.T", matrix.dtype, [*matrix.shape][::-1])
        self._matrix = matrix

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Read the elements."""
        return self._matrix.to_numpy().T


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
