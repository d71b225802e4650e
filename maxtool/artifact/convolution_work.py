"""The work of a model's convolutions, which what it has of weights says little of."""

from __future__ import annotations

from math import prod

from maxtool.artifact.contents import NamedGraph
from maxtool.graph import CallNode, Dim, Graph, Node
from maxtool.graph.limits import CONVOLUTIONS
from maxtool.graph.ops.convolution import TRANSPOSED

# Pixels along a dimension of an image that may have any size.
PIXELS = 64


def operations(function: NamedGraph) -> int:
    """Return about how many multiplications and additions the convolutions of a call are.

    A batch of any size counts as one image, and images of any size as some ``PIXELS`` large.
    """
    return 2 * _products(function.graph, function, {})


def _products(graph: Graph, function: NamedGraph, known: dict[Graph, int]) -> int:
    """Return the products of values with weights of a graph, and of all that it calls."""
    if graph not in known:
        known[graph] = sum(
            _products(node.callee, function, known)
            if isinstance(node, CallNode)
            else _of_node(node, function)
            for node in graph.nodes
        )
    return known[graph]


def _of_node(node: Node, function: NamedGraph) -> int:
    if node.op not in (*CONVOLUTIONS, *TRANSPOSED):
        return 0
    x, weight = node.inputs[:2]
    # Each pixel of one of the two meets the whole filter of its group.
    batch, *sizes, _ = x.shape if node.op in TRANSPOSED else node.outputs[0].shape
    pixels = prod(_size(dim, function, PIXELS) for dim in sizes)
    return _size(batch, function, 1) * pixels * prod(weight.shape.static())


def _size(dim: Dim, function: NamedGraph, likely: int) -> int:
    """A size, where names without a usual one stand for what is ``likely``."""
    sizes = {name: function.usual.get(name, likely) for name in dim.names()}
    return max(0, int(dim.polynomial.evaluate(sizes)))
