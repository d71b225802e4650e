"""What users write, as the operations that have kernels of their own.

``x @ weight.T + bias`` becomes a ``linear``: its weight is stored packed, and nothing is transposed
when the graph runs. Graphs stay as they were traced; only the nodes that are lowered differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from maxtool.graph import BufferType, CallNode, Graph, Node, Tensor
from maxtool.graph.ops import OPS
from maxtool.graph.ops.neural import WEIGHT_DTYPES

Nodes: TypeAlias = Sequence[Node | CallNode]


def rewritten(graph: Graph) -> Nodes:
    """The nodes of ``graph`` to lower, in order; they compute the same outputs."""
    nodes = _with_biases(_with_products(graph.nodes), graph.outputs)
    read = count_uses(nodes, graph.outputs)
    return [node for node in nodes if not _is(node, "permute") or read[id(node.outputs[0])]]


def _is(node: Node | CallNode, op: str) -> bool:
    return isinstance(node, Node) and node.op == op


def count_uses(nodes: Nodes, outputs: Iterable[Tensor]) -> Counter[int]:
    """How often each value is read, by its identity; outputs of the graph once more."""
    operands = (value for node in nodes for value in node.inputs)
    return Counter(id(value) for value in (*operands, *outputs))


def _with_products(nodes: Nodes) -> Nodes:
    """Products with a transposed matrix as ``linear``, or else a product, of the matrix itself."""
    transposed: dict[int, Tensor] = {}
    made: list[Node | CallNode] = []
    for node in nodes:
        if isinstance(node, Node) and _is_transposition(node):
            transposed[id(node.outputs[0])] = node.inputs[0]
        made.append(_product(node, transposed) if isinstance(node, Node) else node)
    return made


def _is_transposition(node: Node) -> bool:
    """Whether it swaps the last two dimensions of what is the same whenever it is read."""
    if node.op != "permute" or isinstance(node.inputs[0].type, BufferType):
        return False
    rank = node.inputs[0].rank
    return rank > 1 and node.attributes["dims"] == (*range(rank - 2), rank - 1, rank - 2)


def _product(node: Node, transposed: Mapping[int, Tensor]) -> Node:
    if node.op != "matmul" or id(node.inputs[1]) not in transposed:
        return node
    x, y = node.inputs[0], transposed[id(node.inputs[1])]
    if (linear := _linear((x, y), node)) is not None:
        return linear
    return Node("matmul", (x, y), {"transposed": True}, node.outputs) if has_kernel(x, y) else node


def has_kernel(x: Tensor, y: Tensor) -> bool:
    """Whether the kernel of products takes them: it knows one matrix, or one for each of ``x``."""
    return x.dtype in WEIGHT_DTYPES and (y.rank == 2 or x.shape[:-2] == y.shape[:-2])


def _linear(operands: Sequence[Tensor], instead: Node) -> Node | None:
    """A ``linear`` with the results of another node; None if it does not take the operands."""
    try:
        types = OPS["linear"].infer(*(operand.type for operand in operands))
    except ValueError:
        return None
    if types != tuple(value.type for value in instead.outputs):
        return None
    return Node("linear", tuple(operands), {}, instead.outputs)


def _with_biases(nodes: Nodes, outputs: Iterable[Tensor]) -> Nodes:
    """A ``linear`` and the row that is added to it, where nothing else reads it, as one."""
    uses = count_uses(nodes, outputs)
    products = {
        id(node.outputs[0]): node
        for node in nodes
        if isinstance(node, Node) and _can_wait(node) and uses[id(node.outputs[0])] == 1
    }
    made: list[Node | CallNode] = []
    gone: set[int] = set()
    for node in nodes:
        joined = _biased(node, products) if isinstance(node, Node) else None
        if joined is not None:
            gone |= {id(value) for value in node.inputs if id(value) in products}
        made.append(joined or node)
    return [node for node in made if not any(id(value) in gone for value in node.outputs)]


def _can_wait(node: Node) -> bool:
    """Whether it is a ``linear`` without bias that may run later than it was written."""
    buffers = any(isinstance(value.type, BufferType) for value in node.inputs)
    return node.op == "linear" and len(node.inputs) == 2 and not buffers


def _biased(node: Node, products: Mapping[int, Node]) -> Node | None:
    if node.op != "add":
        return None
    for product, bias in (node.inputs, node.inputs[::-1]):
        if id(product) in products and id(bias) not in products:
            return _linear((*products[id(product)].inputs, bias), node)
    return None
