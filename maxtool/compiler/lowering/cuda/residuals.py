"""Products and what is added to them, a residual stream, as one launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from maxtool.compiler.rewriting import Nodes, count_uses
from maxtool.dtype import DType
from maxtool.graph import BufferType, CallNode, Node, Tensor
from maxtool.graph.ops.neural import WEIGHT_DTYPES


def with_residuals(
    nodes: Nodes, outputs: Sequence[Tensor], is_here: Callable[[Node], bool]
) -> Nodes:
    """The nodes, each product that is only read to add something to it joined with that."""
    uses = count_uses(nodes, outputs)
    products = {
        id(node.outputs[0]): node
        for node in nodes
        if isinstance(node, Node)
        and _takes_more(node)
        and uses[id(node.outputs[0])] == 1
        and is_here(node)
    }
    made: list[Node | CallNode] = []
    gone: set[int] = set()
    for node in nodes:
        joined = _joined(node, products, gone) if isinstance(node, Node) else None
        made.append(joined or node)
    return [node for node in made if id(node) not in gone]


def _takes_more(node: Node) -> bool:
    """Whether it is a product whose kernel takes a residual, and may run later than it does."""
    buffers = any(isinstance(value.type, BufferType) for value in node.inputs)
    if node.op != "linear" or buffers:
        return False
    x, weight = node.inputs[:2]
    return x.rank > 1 and x.dtype is DType.float32 and weight.dtype in WEIGHT_DTYPES


def _joined(node: Node, products: Mapping[int, Node], gone: set[int]) -> Node | None:
    """The product in the place of an addition; the product that was is marked as gone."""
    if node.op != "add":
        return None
    for value, more in (node.inputs, node.inputs[::-1]):
        product = products.get(id(value))
        fits = more.type == value.type and not isinstance(more.type, BufferType)
        if product is not None and fits and value is not more:
            gone.add(id(product))
            return Node("linear", (*product.inputs, more), {"residual": True}, node.outputs)
    return None
