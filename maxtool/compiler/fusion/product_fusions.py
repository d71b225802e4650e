"""Products on GPUs with what is done before and after them, as one launch.

A product takes in the residual stream that it is added to. In a decode step, where each sequence of
a batch has one row, the products of one input are one launch, as are a gate, what it lets up and
its activation. What is bound by reading the weights is bound by launches too where these are small,
so that of a layer's seven products four launches remain.
"""

from __future__ import annotations

from typing import TypedDict

from maxtool.compiler.fusion.linear_fusions import GATE, reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.dtype import DType
from maxtool.graph import BufferType, Node, Shape
from maxtool.graph.ops.neural import WEIGHT_DTYPES

# Products in one launch at most: each has parameters, and code that stores its sums.
MOST = 4


class Added(TypedDict):
    """Operands of a product that are added to it."""

    bias: bool
    residual: bool


def added(node: Node) -> Added:
    """Return whether a bias and a residual are added to the product of a node."""
    residual = node.attributes.get("residual", False)
    return {"bias": len(node.inputs) - residual == 3, "residual": residual}


def is_one_token(shape: Shape) -> bool:
    """Return whether it is a shape of a decode step: a row for each sequence of a batch."""
    return shape.rank > 2 and all(dim == 1 for dim in shape[1:-1])


def _has_gpu_kernel(node: Node) -> bool:
    """Return whether it is a product of float32 rows that may run elsewhere than it was written."""
    x, weight = node.inputs[:2]
    types = x.dtype is DType.float32 and weight.dtype in WEIGHT_DTYPES
    return types and not reads_buffers(node)


def _with_residual(match: Match) -> Node | None:
    """Return the product with what is added to all of its rows."""
    add, product = match.nodes
    more = match["more"]
    fits = more.type == match["product"].type and not isinstance(more.type, BufferType)
    if not fits or match["x"].rank < 2 or not _has_gpu_kernel(product):
        return None
    if added(product)["residual"]:
        return None
    return Node("linear", (*product.inputs, more), {"residual": True}, add.outputs)


def _is_few(node: Node) -> bool:
    """Return whether it is a product of one row for each sequence."""
    return is_one_token(node.inputs[0].shape) and _has_gpu_kernel(node)


def _gated(match: Match) -> Node | None:
    """Return two products and the activation that joins them as one node."""
    mul, activation, gate, up = match.nodes
    if any(added(node)["residual"] or not _is_few(node) for node in (gate, up)):
        return None
    if gate.inputs[1].type != up.inputs[1].type:
        return None
    biases = (added(gate)["bias"], added(up)["bias"])
    operands = (*gate.inputs, *up.inputs[1:])
    attributes = {"activation": activation.op, "biases": biases}
    return Node("gated_linear", operands, attributes, mul.outputs)


def _few(match: Match) -> Node | None:
    """Return a product of few rows as the first of several."""
    (product,) = match.nodes
    if not _is_few(product):
        return None
    flags = added(product)
    attributes = {"biases": (flags["bias"],), "residual": flags["residual"]}
    return Node("linears", product.inputs, attributes, product.outputs)


def _siblings(match: Match) -> Node | None:
    """Return the products of one input as one node.

    Their other operands must not be computed, as a residual is: they may come later than the first.
    """
    first, second = match.nodes
    biases = first.attributes["biases"] + second.attributes["biases"]
    operands = (*first.inputs, *second.inputs[1:])
    is_late = any(match.index.producer(value) for value in operands[1:])
    has_residual = first.attributes["residual"] or second.attributes["residual"]
    same_type = first.inputs[1].dtype is second.inputs[1].dtype
    if is_late or has_residual or not same_type or len(biases) > MOST:
        return None
    attributes = {"biases": biases, "residual": False}
    return Node("linears", operands, attributes, (*first.outputs, *second.outputs))


# Products take their residuals before those of decode steps are joined.
PRODUCT_FUSIONS = (
    Fusion(
        (
            op("add", "product more -> sum", commutes=True),
            op("linear", "x *operands -> product"),
        ),
        _with_residual,
    ),
    Fusion(GATE, _gated),
    Fusion((op("linear", "x *operands -> product"),), _few),
    Fusion(
        (
            op("linears", "x *operands -> *products"),
            op("linears", "x *more_operands -> *more_products"),
        ),
        _siblings,
        early=True,
    ),
)
