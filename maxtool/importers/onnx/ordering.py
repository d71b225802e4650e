"""Nodes in an order in which each comes behind those that it reads.

ONNX asks for such an order. Tools that edit models often leave another, which onnxruntime takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from maxtool.importers.onnx.protos import GraphProto, NodeProto


def in_order(nodes: Sequence[NodeProto]) -> list[tuple[int, NodeProto]]:
    """Order nodes, each with its place in the model; as they stand where they do or cannot be."""
    placed = list(enumerate(nodes))
    makers: dict[str, int] = {}
    for index, node in placed:
        for name in node.output:
            makers.setdefault(name, index)
    makers.pop("", None)
    needs = [{makers[name] for name in names_read(node) if name in makers} for node in nodes]
    if all(max(each, default=-1) < index for index, each in enumerate(needs)):
        return placed
    order = _sorted(needs)
    return [placed[index] for index in order] if len(order) == len(placed) else placed


def names_read(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, those that graphs inside it take from around them included."""
    yield from node.input
    for graph in graphs_in(node):
        yield from _captured(graph)


def graphs_in(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def _captured(graph: GraphProto) -> set[str]:
    own = {one.name for one in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in names_read(node)}
    return (read | {one.name for one in graph.output}) - own


def _sorted(needs: Sequence[set[int]]) -> list[int]:
    """Numbers behind those that they need, lowest first; those on a circle are left out."""
    left = [len(each) for each in needs]
    waiting = defaultdict(list)
    for index, each in enumerate(needs):
        for needed in each:
            waiting[needed].append(index)
    ready = [index for index, count in enumerate(left) if not count]
    heapify(ready)
    order = []
    while ready:
        done = heappop(ready)
        order.append(done)
        for index in waiting[done]:
            left[index] -= 1
            if not left[index]:
                heappush(ready, index)
    return order
