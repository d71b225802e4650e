"""Which values are read rounded only, so that the kernel that computes one can round it too.

A product with 16-bit weights takes its rows in their type. A norm, a chain of elementwise
operations or an attention whose result is read by such products and nothing else writes that type
itself: one launch less, and no float32 values on their way through memory. Queries, keys and values
that are such products are rounded too where tensor cores then take the attention.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from maxtool.compiler.kernels.cuda.flash import STATIC
from maxtool.compiler.kernels.cuda.flash_mma import Form
from maxtool.compiler.kernels.forms import Heads
from maxtool.compiler.rewriting import Nodes
from maxtool.dtype import DType
from maxtool.graph import CallNode, Node, Tensor

# From nodes, the graph's outputs, and whether a node is lowered for the target, to the types in
# which values are read, by their identity; those that are not there are read as they are.
Rounding: TypeAlias = Callable[[Nodes, Sequence[Tensor], Callable[[Node], bool]], dict[int, DType]]

PRODUCTS = ("linear", "linears", "gated_linear", "expert_linear")
VIEWS = ("reshape", "permute")
OPERANDS = 3  # of attention: queries, keys and values, before a mask
HALVES = (DType.float16, DType.bfloat16)


def rounded_values(
    nodes: Nodes, outputs: Sequence[Tensor], is_here: Callable[[Node], bool]
) -> dict[int, DType]:
    """The values that all their readers take in one 16-bit type, perhaps in another shape."""
    types: dict[int, set[DType | None]] = defaultdict(set)
    found: dict[int, DType] = {}
    made_by = {id(value): node for node in nodes for value in node.outputs}
    for value in outputs:
        types[id(value)].add(None)
    for node in reversed(nodes):
        for value in node.outputs:
            (dtype, *others) = types[id(value)] or {None}
            if dtype is not None and not others:
                found[id(value)] = dtype
        for index, value in enumerate(node.inputs):
            dtype = None
            if isinstance(node, Node) and value.dtype is DType.float32:
                dtype = _read(node, index, found, made_by, is_here)
            types[id(value)].add(dtype)
    return found


def _read(
    node: Node,
    index: int,
    found: Mapping[int, DType],
    made_by: Mapping[int, Node | CallNode],
    is_here: Callable[[Node], bool],
) -> DType | None:
    """The 16-bit type in which a node takes an operand; None if it takes it as it is."""
    if node.op in VIEWS:
        return found.get(id(node.outputs[0]))
    if node.op in PRODUCTS and index == 0 and is_here(node):
        dtype = node.inputs[1].dtype
        return dtype if dtype in HALVES else None
    attends = node.op == "scaled_dot_product_attention" and index < OPERANDS
    return _attended(node, made_by) if attends and is_here(node) else None


def _attended(node: Node, made_by: Mapping[int, Node | CallNode]) -> DType | None:
    """The type of the matrices that gave queries, keys and values, if tensor cores take it."""
    query, key, value = node.inputs[:OPERANDS]
    dtype, *others = {_product_type(one, made_by) for one in (query, key, value)}
    if dtype is None or others:
        return None
    sizes = (query.shape[1], key.shape[1], key.shape[3], value.shape[3])
    heads = Heads(*map(int, sizes))
    return dtype if Form(heads, dtype.value).fits(STATIC) else None


def _product_type(value: Tensor, made_by: Mapping[int, Node | CallNode]) -> DType | None:
    """The 16-bit type of the matrix that a value was multiplied with, perhaps seen otherwise."""
    node = made_by.get(id(value))
    while isinstance(node, Node) and node.op in VIEWS:
        node = made_by.get(id(node.inputs[0]))
    if not isinstance(node, Node) or node.op != "linear":
        return None
    dtype = node.inputs[1].dtype
    return dtype if dtype in HALVES else None
