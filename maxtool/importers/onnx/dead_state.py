"""State of loops that nothing reads, left out of their nodes.

Exporters carry variables that a turn sets and only that turn uses. What they hold before the first
turn is a stand-in, often of another type and rank.
"""

from __future__ import annotations

from maxtool.importers.onnx.ordering import graphs_in, names_read
from maxtool.importers.onnx.protos import GraphProto, NodeProto

LIMITS = 2
"""Inputs of a ``Loop`` before its state: how many turns, and whether there is one."""


def drop_dead_state(graph: GraphProto) -> None:
    """Remove what loops carry that neither a turn nor a node behind the loop reads."""
    loops = [node for node in graph.node if node.op_type == "Loop" and not node.domain]
    read = _read(graph) if loops else set()
    for node in loops:
        for body in graphs_in(node):
            _prune(node, body, read)
    for node in graph.node:
        for inner in graphs_in(node):
            drop_dead_state(inner)


def _prune(node: NodeProto, body: GraphProto, read: set[str]) -> None:
    """Remove dead state of one loop, whose outputs count where ``read`` has them."""
    carried = len(node.input) - LIMITS
    if len(body.input) != LIMITS + carried or min(len(body.output) - 1, len(node.output)) < carried:
        return
    for at in sorted(unread_state(body), reverse=True):
        if node.output[at] not in read:
            del node.input[LIMITS + at], node.output[at]
            del body.input[LIMITS + at], body.output[1 + at]


def unread_state(body: GraphProto) -> set[int]:
    """Return what of its state the body of a loop does not read, by number."""
    read = _read(body)
    return {at for at, one in enumerate(body.input[LIMITS:]) if one.name not in read}


def _read(graph: GraphProto) -> set[str]:
    """The names that a graph gives, or that its nodes read."""
    read = {name for node in graph.node for name in names_read(node)}
    return read | {one.name for one in graph.output}
