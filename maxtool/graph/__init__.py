"""Graphs: our own small structure, which knows no compiler."""

from maxtool.graph import ops
from maxtool.graph.device import CPU, Device, DeviceRef
from maxtool.graph.dim import Dim, DimLike, Shape, ShapeLike
from maxtool.graph.graph import CallNode, Graph, Node
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import BufferType, TensorType
from maxtool.graph.weight import DerivedWeight, Weight

__all__ = [
    "CPU",
    "BufferType",
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
    "Tensor",
    "TensorLike",
    "TensorType",
    "Weight",
    "ops",
]
