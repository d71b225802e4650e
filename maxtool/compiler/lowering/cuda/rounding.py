"""Values that are only read rounded, so that the kernel that computes one can round it too.

A product with 16-bit weights takes its rows in their type. A norm, a chain of elementwise
operations or an attention whose result is read by such products and nothing else writes that type
itself: one launch less, and no float32 values on their way through memory. Queries, keys and values
that are such products are rounded too where tensor cores then take the attention.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TypeAlias

from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.compiler.kernels.cuda.flash import STATIC
from maxtool.compiler.kernels.cuda.flash_mma import TileLayout
from maxtool.compiler.kernels.kernel_options import HeadSizes
from maxtool.dtype import DType
from maxtool.graph import Node, Tensor

# From nodes, and whether one is lowered for the target, to the types in which values are read, by
# their identity; those that are not there are read as they are.
Rounding: TypeAlias = Callable[[NodeIndex, Callable[[Node], bool]], dict[int, DType]]

PRODUCTS = ("linear", "linears", "gated_linear", "expert_linear")
VIEWS = ("reshape", "permute")
OPERANDS = 3  # of attention: queries, keys and values, before a mask
HALVES = (DType.float16, DType.bfloat16)


def rounded_values(index: NodeIndex, is_here: Callable[[Node], bool]) -> dict[int, DType]:
    """Return the values that all readers take in one 16-bit type, perhaps in another shape."""
    read: dict[int, set[DType | None]] = defaultdict(set)
    rounded: dict[int, DType] = {}
    for node in reversed(index.nodes):
        for value in node.outputs:
            (dtype, *others) = read[id(value)] or {None}
            if dtype is not None and not others and not index.is_output(value):
                rounded[id(value)] = dtype
        for position, value in enumerate(node.inputs):
            dtype = None
            if isinstance(node, Node) and value.dtype is DType.float32:
                dtype = _read(node, position, rounded, index, is_here)
            read[id(value)].add(dtype)
    return rounded


def _read(
    node: Node,
    position: int,
    rounded: Mapping[int, DType],
    index: NodeIndex,
    is_here: Callable[[Node], bool],
) -> DType | None:
    """Return the 16-bit type in which a node takes an operand; None if it takes it as it is."""
    if node.op in VIEWS:
        return rounded.get(id(node.outputs[0]))
    if node.op in PRODUCTS and position == 0 and is_here(node):
        dtype = node.inputs[1].dtype
        return dtype if dtype in HALVES else None
    attends = node.op == "scaled_dot_product_attention" and position < OPERANDS
    return _attended(node, index) if attends and is_here(node) else None


def _attended(node: Node, index: NodeIndex) -> DType | None:
    """Return the type of the matrices that gave its operands, if tensor cores take it."""
    query, key, value = node.inputs[:OPERANDS]
    dtype, *others = {_product_type(operand, index) for operand in (query, key, value)}
    if dtype is None or others:
        return None
    sizes = (query.shape[1], key.shape[1], key.shape[3], value.shape[3])
    heads = HeadSizes(*map(int, sizes))
    return dtype if TileLayout(heads, dtype.value).fits(STATIC) else None


def _product_type(value: Tensor, index: NodeIndex) -> DType | None:
    """Return the 16-bit type of the matrix that a value was multiplied with, under its views."""
    node = index.producer(value)
    while isinstance(node, Node) and node.op in VIEWS:
        node = index.producer(node.inputs[0])
    if not isinstance(node, Node) or node.op != "linear":
        return None
    dtype = node.inputs[1].dtype
    return dtype if dtype in HALVES else None
