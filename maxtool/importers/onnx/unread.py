"""Nodes that nothing reads, left out: floats that no operator needed, and what they came from."""

from __future__ import annotations

from maxtool.graph import CallNode, Graph
from maxtool.graph.graph import NAMING


def drop_unread(graph: Graph) -> None:
    """Remove nodes, weights and constants of a graph whose values nothing reads.

    What gives sizes their names stays.
    """
    read = {id(value) for value in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        names = isinstance(node, CallNode) or node.op in NAMING
        if names or any(id(value) in read for value in node.outputs):
            kept.append(node)
            read |= {id(value) for value in node.inputs}
            if isinstance(node, CallNode):
                read |= {id(value) for value in node.weights}
    graph.nodes[:] = reversed(kept)
    graph.constants[:] = [one for one in graph.constants if id(one[1]) in read]
    for name in [name for name, value in graph.weight_values.items() if id(value) not in read]:
        del graph.weight_values[name]
        graph.owners.pop(name, None)
