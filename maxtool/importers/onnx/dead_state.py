"""State of loops that nothing reads, left out of their nodes.

Exporters carry variables that a turn sets and only that turn uses. What they hold before the first
turn is a stand-in, often of another type and rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from maxtool.importers.onnx.protos import GraphProto, NodeProto

LIMITS = 2
"""Inputs of a ``Loop`` before its state: how many turns, and whether there is one."""


def drop_dead_state(graph: GraphProto) -> None:
    """Remove what loops carry that neither a turn nor a node behind the loop reads."""
    read = {*_read(graph)}
    for node in graph.node:
        for inner in _inner(node):
            if node.op_type == "Loop" and not node.domain:
                _prune(node, inner, read)
            drop_dead_state(inner)


def _prune(node: NodeProto, body: GraphProto, read: set[str]) -> None:
    """Remove dead state of one loop, whose outputs count where ``read`` has them."""
    unread = unread_inputs(body)
    carried = len(node.input) - LIMITS
    fits = len(body.input) == LIMITS + carried and len(body.output) > carried
    for at in reversed(range(carried if fits and len(node.output) >= carried else 0)):
        if node.output[at] not in read and LIMITS + at in unread:
            del node.input[LIMITS + at], node.output[at]
            del body.input[LIMITS + at], body.output[1 + at]


def unread_inputs(graph: GraphProto) -> set[int]:
    """Return which inputs of a graph nothing in it reads, by number."""
    read = {*_read(graph)}
    return {at for at, one in enumerate(graph.input) if one.name not in read}


def _read(graph: GraphProto) -> Iterator[str]:
    """Yield the names that a graph reads or gives, those of graphs inside of it too."""
    yield from (one.name for one in graph.output)
    for node in graph.node:
        yield from _of(node)


def _of(node: NodeProto) -> Iterator[str]:
    yield from node.input
    for inner in _inner(node):
        yield from _read(inner)


def _inner(node: NodeProto) -> list[GraphProto]:
    return [one.g for one in node.attribute if one.HasField("g")]
