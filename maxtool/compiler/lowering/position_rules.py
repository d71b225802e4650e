"""The rules for rotary and learned positions."""

from __future__ import annotations

from maxtool.compiler.kernels.requests import AddPositions, Rope, RopeAngles
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule, kernel_rule
from maxtool.graph import Node


def _rope(node: Node) -> Rope:
    x, cos = node.inputs[:2]
    return Rope(head_dim=int(x.shape[3]), dim=2 * int(cos.shape[1]))


def _add_positions(node: Node) -> AddPositions:
    x, table = node.inputs[:2]
    return AddPositions(hidden=int(x.shape[2]), weight_dtype=table.dtype.value)


def _rope_angles(function: FunctionLowering, node: Node) -> None:
    """The tokens are not read: their shape is that of the result."""
    operands = [function.get(operand) for operand in node.inputs[1:]]
    half = int(node.outputs[0].shape[1])
    by_row = node.inputs[2].shape != [1]
    for result, part in zip(node.outputs, ("cos", "sin"), strict=True):
        request = RopeAngles(half=half, **node.attributes, function=part, by_row=by_row)
        value = function.kernel(request, operands, function.sizes(result.shape))
        function.set_whole(result, value)


POSITIONS: dict[str, Rule] = {
    "rope": kernel_rule(_rope),
    "rope_angles": _rope_angles,
    "add_positions": kernel_rule(_add_positions),
}
