"""Functions of one graph that differ: in the sizes that they are for, and in how kernels run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from maxtool.compiler.placement import Placement
from maxtool.graph import CallNode, Graph
from maxtool.graph.nested_graph import FlowGraph, NestedGraph

CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "integer_convolution"})
PRODUCTS = frozenset({"linear", "matmul", "expert_linear"})


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """What tells a function from others of the same graph.

    Attributes:
        sizes: Names of dimensions that it has one size of, and that size.
        joined: Whether its kernels are joined (:mod:`maxtool.compiler.joining`).
    """

    sizes: tuple[tuple[str, int], ...] = ()
    joined: bool = False

    @classmethod
    def for_sizes(cls, sizes: Mapping[str, int]) -> FunctionForm:
        """Return the form for the sizes that most calls have."""
        return cls(tuple(sizes.items()), joined=True)


PLAIN, JOINED = FunctionForm(), FunctionForm(joined=True)


def can_join(graph: Graph, placement: Placement) -> bool:
    """Return whether the kernels of a graph may be joined.

    Those of CPUs may, unless the graph has control flow, which asks for sizes by name.
    """
    callees = [node.callee for node in graph.nodes if isinstance(node, CallNode)]
    if any(isinstance(callee, NestedGraph | FlowGraph) for callee in callees):
        return False
    here = {placement.target(device).kind for device in placement.devices}
    return here == {"cpu"} and all(can_join(callee, placement) for callee in set(callees))


def is_convolutional(graph: Graph) -> bool:
    """Return whether a graph has several convolutions, and no more products than of these.

    Their kernels are joined for all sizes: their code is that of functions which kernels share, so
    that it is compiled no more often. Between those of transformers are products of any number of
    rows, which cannot be joined.
    """
    names = list(_operations(graph))
    convolutions = sum(name in CONVOLUTIONS for name in names)
    return convolutions > 1 and convolutions >= sum(name in PRODUCTS for name in names)


def _operations(graph: Graph) -> Iterator[str]:
    """Yield the operations of a graph and of all that it calls."""
    for node in graph.nodes:
        if isinstance(node, CallNode):
            yield from _operations(node.callee)
        else:
            yield node.op
