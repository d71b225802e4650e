"""Values of the weights of a graph: whole ones cut for each device, encoded ones as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, Weight
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.weight_data import WeightData

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class WeightValues:
    """Values of weights by name: elements, or bytes of blocks for those with an encoding."""

    arrays: dict[str, Array]
    encodings: dict[str, QuantizationEncoding]


def weight_values(graph: Graph, data: Mapping[str, WeightData]) -> WeightValues:
    """The values of every weight of the graph that has data; of a split one, each part's.

    Those that the graph declares as quantized stay so, and all others are decoded.
    """
    parts = {
        name: part.strategy.cut(data[part.whole], part.index)
        for name, part in graph.parts.items()
        if part.whole in data and name not in data
    }
    known = {**data, **parts}
    kept = {
        name: encoding
        for name in graph.weight_values.keys() & known.keys()
        if (encoding := known[name].quantization_encoding) and _stays(graph, known[name], name)
    }
    arrays = {
        name: known[name].data if name in kept else elements(known[name])
        for name in graph.weight_values
        if name in known
    }
    return WeightValues(arrays, kept)


def _stays(graph: Graph, data: WeightData, name: str) -> bool:
    """Return whether a weight is declared as its data is encoded."""
    declared = graph.weight(name)
    return (
        declared is not None
        and data.dtype is DType.float32
        and declared.quantization_encoding is data.quantization_encoding
    )


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
