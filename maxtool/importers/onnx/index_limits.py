"""Inputs whose numbers are places in a dimension of known size: what they may be."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.dtype import DType
from maxtool.graph import CallNode, Graph, Tensor

WHOLE = (DType.int32, DType.int64)
# Operations that pass whole numbers on as they are.
PASSING = ("cast", "reshape", "broadcast_to", "permute")


def index_limits(graph: Graph, inputs: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """The least and the largest number of each input that says which elements are read.

    Compiled code reads at the nearest end what does not exist; ONNX calls that an error. Only
    inputs that are used as places themselves are found: numbers that a graph computes are its own.
    """
    meant = {id(one): name for name, one in inputs.items() if one.dtype in WHOLE}
    found: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if isinstance(node, CallNode) or not node.inputs:
            continue
        if node.op in PASSING and id(node.inputs[0]) in meant and node.outputs[0].dtype in WHOLE:
            meant[id(node.outputs[0])] = meant[id(node.inputs[0])]
        if node.op == "gather" and id(node.inputs[1]) in meant:
            name, size = meant[id(node.inputs[1])], node.inputs[0].shape[node.attributes["axis"]]
            if size.is_static:
                low, high = found.get(name, (-int(size), int(size) - 1))
                found[name] = max(low, -int(size)), min(high, int(size) - 1)
    return found
