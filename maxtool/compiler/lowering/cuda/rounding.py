"""Which values are read rounded only, so that the kernel that computes one can round it too.

A product with 16-bit weights takes its rows in their type. A norm, a chain of elementwise
operations or an attention whose result is read by such products and nothing else writes that type
itself: one launch less, and no float32 values on their way through memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from maxtool.compiler.rewriting import Nodes
from maxtool.dtype import DType
from maxtool.graph import CallNode, Node, Tensor

# From nodes, the graph's outputs, and whether a node is lowered for the target, to the types in
# which values are read, by their identity; those that are not there are read as they are.
Rounding: TypeAlias = Callable[[Nodes, Sequence[Tensor], Callable[[Node], bool]], dict[int, DType]]

PRODUCTS = ("linear", "linears", "gated_linear", "expert_linear")
HALVES = (DType.float16, DType.bfloat16)


def rounded_values(
    nodes: Nodes, outputs: Sequence[Tensor], is_here: Callable[[Node], bool]
) -> dict[int, DType]:
    """The values that all their readers take in one 16-bit type, perhaps in another shape."""
    types: dict[int, set[DType | None]] = defaultdict(set)
    found: dict[int, DType] = {}
    for value in outputs:
        types[id(value)].add(None)
    for node in reversed(nodes):
        for value in node.outputs:
            (dtype, *others) = types[id(value)] or {None}
            if dtype is not None and not others:
                found[id(value)] = dtype
        for index, value in enumerate(node.inputs):
            types[id(value)].add(_read(node, index, found, is_here))
    return found


def _read(
    node: Node | CallNode, index: int, found: Mapping[int, DType], is_here: Callable[[Node], bool]
) -> DType | None:
    """The 16-bit type in which a node takes an operand; None if it takes it as it is."""
    if isinstance(node, CallNode) or node.inputs[index].dtype is not DType.float32:
        return None
    if node.op == "reshape":
        return found.get(id(node.outputs[0]))
    product = node.op in PRODUCTS and index == 0 and is_here(node)
    dtype = node.inputs[1].dtype if product else None
    return dtype if dtype in HALVES else None
