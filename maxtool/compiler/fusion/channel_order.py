"""Permutations moved towards the outputs of graphs of images, where most of them cancel.

Convolutions and pools take channels last. A model whose channels come first permutes what goes into
each and what comes out; between two of these only operations stand that work in any order of
dimensions. So a permutation is not carried out where it stands: its result is known as a source and
an order, operations of that kind are applied to sources, and what needs the result itself gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from maxtool.compiler.fusion.node_index import AnyNode
from maxtool.graph import BufferType, Graph, Node, Shape, Tensor, TensorType
from maxtool.graph.ops.comparison import COMPARISONS, LOGICAL, TESTS
from maxtool.graph.ops.elementwise import BINARY, UNARY
from maxtool.graph.ops.pooling import POOLS
from maxtool.graph.ops.reduction import REDUCTIONS

Order: TypeAlias = tuple[int, ...]
# The attributes of an operation on a source, from those on what is permuted.
Moved: TypeAlias = Callable[[Mapping[str, Any], Order], Mapping[str, Any]]

# Operations on images, without which a graph stays as it is.
_IMAGES = {
    *(f"{name}{spatial}d" for name in ("conv", "conv_transpose") for spatial in (1, 2, 3)),
    *(name for names in POOLS.values() for name in names),
    "integer_convolution",
}

# Operations that work in any order of dimensions, all of whose operands broadcast.
_ELEMENTWISE = {*UNARY, *BINARY, *COMPARISONS, *LOGICAL, *TESTS, "cast", "logical_not", "where"}


def _axis(attributes: Mapping[str, Any], order: Order) -> Mapping[str, Any]:
    return {**attributes, "axis": order[attributes["axis"]]}


def _axes(attributes: Mapping[str, Any], order: Order) -> Mapping[str, Any]:
    return {**attributes, "axes": tuple(sorted(order[axis] for axis in attributes["axes"]))}


def _each(*names: str) -> Moved:
    """Move attributes that have an item for each dimension."""

    def moved(attributes: Mapping[str, Any], order: Order) -> Mapping[str, Any]:
        back = inverse(order)
        own = {name: tuple(attributes[name][axis] for axis in back) for name in names}
        return {**attributes, **own}

    return moved


def _shape(attributes: Mapping[str, Any], order: Order) -> Mapping[str, Any]:
    sizes = attributes["shape"]
    return {**attributes, "shape": Shape([sizes[axis] for axis in inverse(order)])}


# Operations on one tensor, or on several alike, that say which dimensions they mean.
_ALONG: dict[str, Moved] = {
    **dict.fromkeys(REDUCTIONS, _axes),
    "concat": _axis,
    "pad": _each("before", "after"),
    "rebind": _shape,
    "slice": _each("ranges"),
}


# Operations on the first of two operands; the other, of one dimension, is not permuted.
_ON_FIRST: dict[str, Moved] = {"gather": _axis}


def with_moved_permutes(graph: Graph) -> list[AnyNode]:
    """Return the nodes of a graph, with permutations where they are needed if it is of images."""
    if not any(isinstance(node, Node) and node.op in _IMAGES for node in graph.nodes):
        return list(graph.nodes)
    moving = _Moving(graph)
    for node in graph.nodes:
        moving.add(node)
    for value in graph.outputs:
        moving.provide(value)
    return moving.nodes


def inverse(order: Order) -> Order:
    """Return the order that undoes another one."""
    return tuple(order.index(axis) for axis in range(len(order)))


class _Moving:
    """The nodes of a graph while permutations are moved."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[AnyNode] = []
        self._graph = graph
        # What a value is a permutation of, by the value.
        self._sources: dict[int, tuple[Tensor, Order]] = {}
        # What has been computed, by the source and the order.
        self._computed: dict[tuple[int, Order], Tensor] = {}
        self._provided: set[int] = set()
        # Results of operations on images, and what other operations make of these.
        self._images: set[int] = set()

    def add(self, node: AnyNode) -> None:
        """Add a node, or what its result is a permutation of."""
        if not isinstance(node, Node):
            for value in node.inputs:
                self.provide(value)
            self.nodes.append(node)
        elif node.op == "permute" and self._is_of_image(node.inputs[0]):
            self._permute(node)
        elif not self._move(node):
            inputs = tuple(self._plain(value) for value in node.inputs)
            self.nodes.append(Node(node.op, inputs, node.attributes, node.outputs))
            if node.op == "permute":
                key = id(inputs[0]), node.attributes["dims"]
                self._computed.setdefault(key, node.outputs[0])
            if node.op in _IMAGES:
                self._images |= {id(value) for value in node.outputs}

    def provide(self, value: Tensor) -> None:
        """Compute a value by its own name."""
        if id(value) not in self._sources or id(value) in self._provided:
            return
        source, order = self._sources[id(value)]
        self._provided.add(id(value))
        self._computed.setdefault((id(source), order), value)
        self.nodes.append(_permutation(source, order, value))

    def _is_of_image(self, value: Tensor) -> bool:
        """Return whether channels come last in what it is a permutation of."""
        source, _ = self._sources.get(id(value), (value, ()))
        return id(source) in self._images and not isinstance(value.type, BufferType)

    def _permute(self, node: Node) -> None:
        (x,), (result,) = node.inputs, node.outputs
        source, order = self._sources.get(id(x), (x, tuple(range(x.rank))))
        dims: Order = node.attributes["dims"]
        self._sources[id(result)] = source, tuple(order[axis] for axis in dims)

    def _plain(self, value: Tensor) -> Tensor:
        """A value that has been computed, which may be its source."""
        if id(value) not in self._sources:
            return value
        source, order = self._sources[id(value)]
        if list(order) == sorted(order):
            return source
        known = self._computed.get((id(source), order))
        if known is not None:
            return known
        self.provide(value)
        return value

    def _move(self, node: Node) -> bool:
        """Apply an operation to the sources of its operands, if it works in their order."""
        is_elementwise = node.op in _ELEMENTWISE
        is_on_first = node.op in _ON_FIRST and node.inputs[1].rank == 1
        moves = is_elementwise or is_on_first or node.op in _ALONG
        if not moves or len(node.outputs) != 1:
            return False
        result = node.outputs[0]
        moved = node.inputs[:1] if is_on_first else node.inputs
        order = self._order(moved, result.rank)
        if order is None or any(isinstance(each.type, BufferType) for each in node.inputs):
            return False
        inputs = [self._as_source(value, order) for value in moved]
        inputs += [self._plain(value) for value in node.inputs[len(moved) :]]
        attributes = node.attributes
        if not is_elementwise:
            attributes = {**_ALONG, **_ON_FIRST}[node.op](node.attributes, order)
        value = self._value(result, [result.shape[axis] for axis in inverse(order)])
        self.nodes.append(Node(node.op, tuple(inputs), attributes, (value,)))
        self._sources[id(result)] = value, order
        self._images.add(id(value))
        return True

    def _order(self, operands: Sequence[Tensor], rank: int) -> Order | None:
        """The order of the first operand of the result's rank that is a permutation."""
        for value in operands:
            _, order = self._sources.get(id(value), (value, ()))
            if value.rank == rank and list(order) != sorted(order):
                return order
        return None

    def _as_source(self, value: Tensor, order: Order) -> Tensor:
        """The tensor that an operand is a permutation of by an order."""
        source, own = self._sources.get(id(value), (value, None))
        if own == order or value.rank == 0:
            return source
        shape = Shape([*(1 for _ in order[value.rank :]), *value.shape])
        if not _is_line(shape):
            return self._permuted(self._reshaped(self._plain(value), shape), inverse(order))
        line = Shape([shape[axis] for axis in inverse(order)])
        return self._reshaped(self._plain(value), line)

    def _permuted(self, value: Tensor, order: Order) -> Tensor:
        """A value in another order, computed once."""
        key = (id(value), order)
        if key not in self._computed:
            self._computed[key] = self._value(value, [value.shape[axis] for axis in order])
            self.nodes.append(_permutation(value, order, self._computed[key]))
        return self._computed[key]

    def _reshaped(self, value: Tensor, shape: Shape) -> Tensor:
        if value.shape == shape:
            return value
        result = self._value(value, shape)
        self.nodes.append(Node("reshape", (value,), {"shape": shape}, (result,)))
        return result

    def _value(self, like: Tensor, shape: Iterable[Any]) -> Tensor:
        """Make a value of another shape."""
        return Tensor.traced(TensorType(like.dtype, list(shape), like.device), self._graph)


def _is_line(shape: Sequence[Any]) -> bool:
    """Return whether its elements lie alike in every order of its dimensions."""
    return len([dim for dim in shape if dim != 1]) <= 1


def _permutation(source: Tensor, order: Order, result: Tensor) -> Node:
    """The node that permutes; dimensions of 1 are moved by another shape."""
    moving = [axis for axis in order if source.shape[axis] != 1]
    if moving == sorted(moving):
        return Node("reshape", (source,), {"shape": result.shape}, (result,))
    return Node("permute", (source,), {"dims": order}, (result,))
