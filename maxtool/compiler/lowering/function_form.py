"""Functions of one graph that differ: in the sizes that they are for, and in how kernels run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from maxtool.compiler.placement import Placement
from maxtool.graph import CallNode, Graph
from maxtool.graph.limits import CONVOLUTIONS
from maxtool.graph.nested_graph import FlowGraph, NestedGraph

PRODUCTS = frozenset({"linear", "matmul", "expert_linear"})


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """Difference of a function from others of the same graph.

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
    here = {placement.target(device).kind for device in placement.devices}
    has_flow = any(isinstance(each, NestedGraph | FlowGraph) for each in _called_by(graph))
    return here == {"cpu"} and not has_flow


def _called_by(graph: Graph) -> set[Graph]:
    """Return all graphs that a graph calls, and that these call."""
    found, waiting = set[Graph](), [graph]
    while waiting:
        callees = {node.callee for node in waiting.pop().nodes if isinstance(node, CallNode)}
        waiting += callees - found
        found |= callees
    return found


def is_convolutional(graph: Graph) -> bool:
    """Return whether a graph has several convolutions, and no more products than of these.

    Their kernels are joined for all sizes: their code is that of functions which kernels share, so
    that it is compiled no more often. Between those of transformers are products of any number of
    rows, which cannot be joined.
    """
    counts = _counts(graph, {})
    convolutions = sum(counts[name] for name in CONVOLUTIONS)
    return convolutions > 1 and convolutions >= sum(counts[name] for name in PRODUCTS)


def _counts(graph: Graph, known: dict[Graph, Counter[str]]) -> Counter[str]:
    """Return how often each operation is run by a graph, and by all that it calls."""
    if graph not in known:
        counts: Counter[str] = Counter()
        for node in graph.nodes:
            own = _counts(node.callee, known) if isinstance(node, CallNode) else {node.op: 1}
            counts.update(own)
        known[graph] = counts
    return known[graph]
