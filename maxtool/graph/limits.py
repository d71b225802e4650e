"""Demands of a graph: on the sizes of its symbolic dimensions, and on the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, starmap
from typing import TypeAlias

import numpy as np

from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Dim
from maxtool.graph.graph import CallNode, Graph
from maxtool.graph.nested_graph import FlowGraph
from maxtool.graph.node import Node
from maxtool.graph.ops.pooling import POOLS
from maxtool.graph.ops.reduction import INDICES
from maxtool.graph.tensor import Tensor

# Dimensions, and the sizes that they must have at least.
Demands: TypeAlias = Iterator[tuple[Dim, int]]
TRIED = np.array([*range(4097), 1 << 30])
"""Sizes that are tried: dimensions grow with them linearly, in steps."""


def least_sizes(graph: Graph) -> dict[Dim, int]:
    """The least size of each symbolic dimension with which nothing outside a tensor is read.

    ``x[:, -1]`` needs one element, ``x[:, 3]`` four; the place of a maximum needs one element; a
    table of positions that begins at a known one holds as many as it has rows.
    Dimensions of which nothing is demanded are not in it.
    """
    least: dict[Dim, int] = {}
    for dim, size in starmap(_by_name, _demands(graph)):
        if size > 0 and not dim.is_static:
            least[dim] = max(size, least.get(dim, 0))
    return least


def _by_name(dim: Dim, size: int) -> tuple[Dim, int]:
    """A demand on what follows from one size that has a name, as one on that size.

    It stays as it is where larger sizes do not surely make the dimension larger.
    """
    names = dim.names()
    if isinstance(dim.value, str) or len(names) != 1:
        return dim, size
    fits = dim.polynomial.evaluate({names[0]: TRIED}) >= size
    first = int(fits.argmax())
    return (Dim(names[0]), int(TRIED[first])) if fits[first:].all() else (dim, size)


def devices(graph: Graph) -> set[DeviceRef]:
    """Every device that a graph or one of its subgraphs names."""
    values = (*graph.inputs, *graph.weight_values.values(), *graph.outputs)
    used = {value.device for value in values}
    for node in graph.nodes:
        used |= {value.device for value in node.outputs}
        if isinstance(node, CallNode):
            used |= devices(node.callee)
    return used


def _demands(graph: Graph) -> Demands:
    called = {id(node.callee): node.callee for node in graph.nodes if isinstance(node, CallNode)}
    for callee in called.values():
        turns = callee.turns if isinstance(callee, FlowGraph) else None
        # Where that size is 0, nothing of the body is computed.
        yield from ((dim, size) for dim, size in _demands(callee) if dim != turns or size > 1)
    known = {id(value): constant for constant, value in graph.constants}
    for node in graph.nodes:
        if not isinstance(node, CallNode):
            if node.op in DEMANDS:
                yield from DEMANDS[node.op](node)
            if node.op in POSITIONED and id(node.inputs[-1]) in known:
                yield _positions(node, known[id(node.inputs[-1])])


def _slice(node: Node) -> Demands:
    for dim, part in zip(node.inputs[0].shape, node.attributes["ranges"], strict=True):
        yield dim, part.least
        if not part.least:  # a piece of a size that was asked for
            yield from _not_negative(part.size)


def _elements(read: Callable[[Node], Iterable[Dim]]) -> Callable[[Node], Demands]:
    """Demand an element of each dimension that an operation reads."""
    return lambda node: ((dim, 1) for dim in read(node))


def _gathered(node: Node) -> Iterable[Dim]:
    batch, depth = node.attributes["batch"], int(node.inputs[1].shape[-1])
    return node.inputs[0].shape[batch : batch + depth]


def _reduced(node: Node) -> Iterable[Dim]:
    return [node.inputs[0].shape[axis] for axis in node.attributes["axes"]]


def _positions(node: Node, first: Tensor) -> tuple[Dim, int]:
    """The rows of the table that are left: beyond the last, kernels would repeat it."""
    length, rows = node.inputs[0].shape[1], node.inputs[1].shape[0]
    return rows - length + (1 - int(first.to_numpy()[0])), 1


CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "integer_convolution")
SLIDING = (*CONVOLUTIONS, *chain.from_iterable(POOLS.values()))
"""Operations of which no image may be smaller than a window."""

# Operations on [batch, seq, ...] that take rows of a table, from the position that comes last on.
POSITIONED = ("add_positions", "rope")


def _ranked(node: Node) -> Demands:
    (axis,) = node.attributes["axes"]
    yield node.inputs[0].shape[axis], node.attributes["k"]


def _windows(node: Node) -> Demands:
    return ((dim, 1) for dim in node.outputs[0].shape[1:-1])


def _made(node: Node) -> Demands:
    for dim in node.outputs[0].shape:
        yield from _not_negative(dim)


def _not_negative(size: Dim) -> Demands:
    """Demand that a size which may be negative by its form, such as n - 5, is not."""
    if any(factor < 0 for _, factor in size.polynomial.terms):
        yield size + 1, 1


DEMANDS: Mapping[str, Callable[[Node], Demands]] = {
    "broadcast_to": _made,
    "gather": _elements(lambda node: [node.inputs[0].shape[node.attributes["axis"]]]),
    "gather_nd": _elements(_gathered),
    "range": _made,
    "slice": _slice,
    "top_k": _ranked,
    **dict.fromkeys(SLIDING, _windows),
    **dict.fromkeys(INDICES, _elements(_reduced)),
}
