"""Graphs: our own small structure, which knows no compiler."""

from maxtool.graph import ops, quantization, random, weights
from maxtool.graph.device import CPU, Device, DeviceRef
from maxtool.graph.dim import AlgebraicDim, Dim, DimLike, Shape, ShapeLike, StaticDim, SymbolicDim
from maxtool.graph.graph import CallNode, Graph
from maxtool.graph.node import Node
from maxtool.graph.sharding import ShardingStrategy
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import BufferType, TensorType, Type
from maxtool.graph.weight import DerivedWeight, Shard, Weight

# One class serves all kinds of values.
Value = Tensor
TensorValue = Tensor
BufferValue = Tensor

__all__ = [
    "CPU",
    "AlgebraicDim",
    "BufferType",
    "BufferValue",
    "CallNode",
    "DerivedWeight",
    "Device",
    "DeviceRef",
    "Dim",
    "DimLike",
    "Graph",
    "Node",
    "Shape",
    "ShapeLike",
    "Shard",
    "ShardingStrategy",
    "StaticDim",
    "SymbolicDim",
    "Tensor",
    "TensorLike",
    "TensorType",
    "TensorValue",
    "Type",
    "Value",
    "Weight",
    "ops",
    "quantization",
    "random",
    "weights",
]
