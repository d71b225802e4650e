"""The rules for rotary and learned positions."""

from __future__ import annotations

from maxtool.compiler.kernels.requests import AddPositions, Rope, RopeAngles
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.graph import Node


def _rope(function: FunctionLowering, node: Node) -> None:
    x, cos = node.inputs[:2]
    request = Rope(head_dim=int(x.shape[3]), dim=2 * int(cos.shape[1]))
    operands = [function.get(operand) for operand in node.inputs]
    value = function.kernel(request, operands, function.sizes(x.shape))
    function.set_whole(node.outputs[0], value)


def _rope_angles(function: FunctionLowering, node: Node) -> None:
    """The tokens are not read: their shape is that of the result."""
    _, *operands = node.inputs
    for result, part in zip(node.outputs, ("cos", "sin"), strict=True):
        request = RopeAngles(
            half=int(result.shape[1]),
            original=node.attributes["original"],
            factor=node.attributes["factor"],
            function=part,
        )
        values = [function.get(operand) for operand in operands]
        value = function.kernel(request, values, function.sizes(result.shape))
        function.set_whole(result, value)


def _add_positions(function: FunctionLowering, node: Node) -> None:
    x, table = node.inputs[:2]
    request = AddPositions(hidden=int(x.shape[2]), weight_dtype=table.dtype.value)
    operands = [function.get(operand) for operand in node.inputs]
    value = function.kernel(request, operands, function.sizes(x.shape))
    function.set_whole(node.outputs[0], value)


POSITIONS: dict[str, Rule] = {
    "rope": _rope,
    "rope_angles": _rope_angles,
    "add_positions": _add_positions,
}
