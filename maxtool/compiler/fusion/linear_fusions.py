"""Fusion of users' expressions into operations that have kernels of their own, on every target.

``x @ weight.T + bias`` becomes a ``linear``: its weight is stored packed, and nothing is transposed
when the graph runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.compiler.kernels.formulas import ACTIVATIONS
from maxtool.graph import BufferType, Node, Tensor
from maxtool.graph.ops import OPS
from maxtool.graph.ops.neural import WEIGHT_DTYPES

ACTIVATION = " ".join(sorted(ACTIVATIONS))

# The product of two linear layers of one input, the first of which an activation has passed.
GATE = (
    op("mul", "active up -> product", commutes=True),
    op(ACTIVATION, "gate -> active"),
    op("linear", "x *gate_operands -> gate"),
    op("linear", "x *up_operands -> up"),
)


def has_kernel(x: Tensor, y: Tensor) -> bool:
    """Return whether the product kernel takes them: one matrix, or one for each of ``x``."""
    return x.dtype in WEIGHT_DTYPES and (y.rank == 2 or x.shape[:-2] == y.shape[:-2])


def reads_buffers(node: Node) -> bool:
    """Return whether a node reads what may be overwritten, so that it must run where it stands."""
    return any(isinstance(value.type, BufferType) for value in node.inputs)


def _transposed_product(match: Match) -> Node | None:
    """Return the product with the matrix itself, as ``linear`` where that takes the operands."""
    product, transposition = match.nodes
    x, matrix = match["x"], match["matrix"]
    if product.attributes.get("transposed") or not _swaps_last(transposition):
        return None
    if (linear := _linear((x, matrix), product)) is not None:
        return linear
    if not has_kernel(x, matrix):
        return None
    return Node("matmul", (x, matrix), {"transposed": True}, product.outputs)


def _swaps_last(permute: Node) -> bool:
    """Return whether it swaps the last two dimensions of what is the same whenever it is read."""
    rank = permute.inputs[0].rank
    if rank < 2 or reads_buffers(permute):
        return False
    dims: tuple[int, ...] = permute.attributes["dims"]
    return dims == (*range(rank - 2), rank - 1, rank - 2)


def _linear(operands: Sequence[Tensor], instead: Node) -> Node | None:
    """Return a ``linear`` with the results of a node; None if it does not take the operands."""
    try:
        types = OPS["linear"].infer(*(operand.type for operand in operands))
    except ValueError:
        return None
    if types != tuple(value.type for value in instead.outputs):
        return None
    return Node("linear", tuple(operands), {}, instead.outputs)


def _biased(match: Match) -> Node | None:
    """Return the product with its bias, which is not such a product itself."""
    add, product = match.nodes
    other = match.index.producer(match["bias"])
    if reads_buffers(product) or (isinstance(other, Node) and _is_plain(other)):
        return None
    return _linear((*product.inputs, match["bias"]), add)


def _is_plain(node: Node) -> bool:
    """Return whether it is a ``linear`` without a bias."""
    return node.op == "linear" and len(node.inputs) == 2


LINEAR_FUSIONS = (
    Fusion(
        (op("matmul", "x turned -> product"), op("permute", "matrix -> turned", kept=True)),
        _transposed_product,
    ),
    Fusion(
        (
            op("add", "product bias -> sum", commutes=True),
            op("linear", "x weight -> product"),
        ),
        _biased,
    ),
)
