"""Inputs of a graph that the elements of a value are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from maxtool.graph import Graph, Tensor


def deciding_inputs(
    graph: Graph, names: Sequence[str], tensors: Iterable[Tensor]
) -> dict[int, list[str]]:
    """Names of the inputs that each tensor follows from, by its identity.

    Of a value of a graph inside of this one there are none.
    """
    inputs = {id(value): name for value, name in zip(graph.inputs, names, strict=True)}
    makers = {id(value): node for node in graph.nodes for value in node.outputs}
    found: dict[int, list[str]] = {}
    for tensor in tensors:
        seen: set[int] = set()
        waiting = [tensor]
        while waiting:
            value = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if id(value) in makers:
                waiting += makers[id(value)].inputs
        found[id(tensor)] = [name for key, name in inputs.items() if key in seen]
    return found
