"""Graphs: our own small structure, which knows no compiler."""

from maxtool.graph import ops, quantization, random, weights
from maxtool.graph.device import CPU, Device, DeviceRef
from maxtool.graph.dim import AlgebraicDim, Dim, DimLike, Shape, ShapeLike, StaticDim, SymbolicDim
from maxtool.graph.folded_weight import FoldedWeight
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

__all__ = ["CPU", "Device", "DeviceRef"]
__all__ += ["AlgebraicDim", "Dim", "DimLike", "Shape", "ShapeLike", "StaticDim", "SymbolicDim"]
__all__ += ["BufferType", "TensorType", "Type"]
__all__ += ["BufferValue", "Tensor", "TensorLike", "TensorValue", "Value"]
__all__ += ["CallNode", "Graph", "Node"]
__all__ += ["DerivedWeight", "FoldedWeight", "Shard", "ShardingStrategy", "Weight"]
__all__ += ["ops", "quantization", "random", "weights"]
