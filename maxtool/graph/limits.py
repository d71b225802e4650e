"""What a graph demands: of the sizes of its symbolic dimensions, and of the machine."""

from __future__ import annotations

from collections.abc import Iterator

from maxtool.graph.device import DeviceRef
from maxtool.graph.graph import CallNode, Graph, Node
from maxtool.graph.ops.reduction import NOT_OF_NOTHING


def least_sizes(graph: Graph) -> dict[str, int]:
    """The least size of each symbolic dimension with which nothing outside a tensor is read.

    ``x[:, -1]`` needs one element, ``x[:, 3]`` four; a sum of products needs one term, a maximum
    one element. Dimensions of which nothing is demanded are not in it.
    """
    least: dict[str, int] = {}
    for name, size in _demands(graph):
        least[name] = max(size, least.get(name, 0))
    return least


def devices(graph: Graph) -> set[DeviceRef]:
    """Every device that a graph or one of its subgraphs names."""
    values = (*graph.inputs, *graph.weight_values.values(), *graph.outputs)
    found = {value.device for value in values}
    for node in graph.nodes:
        found |= {value.device for value in node.outputs}
        if isinstance(node, CallNode):
            found |= devices(node.callee)
    return found


def _demands(graph: Graph) -> Iterator[tuple[str, int]]:
    called = {id(node.callee): node.callee for node in graph.nodes if isinstance(node, CallNode)}
    for callee in called.values():
        yield from _demands(callee)
    for node in graph.nodes:
        if not isinstance(node, CallNode):
            yield from DEMANDS.get(node.op, _nothing)(node)


def _nothing(_node: Node) -> Iterator[tuple[str, int]]:
    return iter(())


def _slice(node: Node) -> Iterator[tuple[str, int]]:
    starts, keep = node.attributes["starts"], node.attributes["keep"]
    for dim, start, kept in zip(node.inputs[0].shape, starts, keep, strict=True):
        if isinstance(dim.value, str) and not kept:
            yield dim.value, -start if start < 0 else start + 1


def _matmul(node: Node) -> Iterator[tuple[str, int]]:
    inner = node.inputs[0].shape[-1].value
    if isinstance(inner, str):
        yield inner, 1


def _extreme(node: Node) -> Iterator[tuple[str, int]]:
    for axis in node.attributes["axes"]:
        size = node.inputs[0].shape[axis].value
        if isinstance(size, str):
            yield size, 1


DEMANDS = {"matmul": _matmul, "slice": _slice, **dict.fromkeys(NOT_OF_NOTHING, _extreme)}
