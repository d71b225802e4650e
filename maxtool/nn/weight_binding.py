"""Values of the weights of a graph: whole ones cut for each device, encoded ones decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from maxtool.graph import Graph, Tensor, Weight
from maxtool.weights.weight_data import WeightData

Array: TypeAlias = np.ndarray[Any, Any]


def weight_elements(graph: Graph, data: Mapping[str, WeightData]) -> dict[str, Array]:
    """The elements of every weight of the graph that has data; of a split one, each part's."""
    parts = {
        name: part.strategy.cut(data[part.whole], part.index)
        for name, part in graph.parts.items()
        if part.whole in data and name not in data
    }
    known = {**data, **parts}
    return {name: elements(known[name]) for name in graph.weight_values if name in known}


def bound_data(name: str, tensor: Tensor) -> WeightData:
    """The data that a parameter has, under that name; a quantized weight's is encoded."""
    array = tensor.to_numpy()
    if isinstance(tensor, Weight) and tensor.quantization_encoding:
        shape = tensor.shape.static()
        return WeightData(array, name, tensor.dtype, shape, tensor.quantization_encoding)
    return WeightData.from_numpy(array, name)


def elements(data: WeightData) -> Array:
    """The elements of a weight, decoded if they are encoded."""
    return data.data if data.quantization_encoding is None else data.astype(data.dtype).data
