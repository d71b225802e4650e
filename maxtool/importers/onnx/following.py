"""Operators whose result is known to be made of scaled whole numbers if an operand is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from maxtool.graph import Tensor
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import Operator
from maxtool.importers.onnx.origins import Origin, Part
from maxtool.importers.onnx.refusals import MISFITS
from maxtool.importers.onnx.values import Value

# From a node, the function of its operator and its result to what that is made of.
Follower = Callable[[OperatorCall, Operator, Tensor], Origin | None]

MOST_PARTS = 2
"""Parts that a sum is made of."""


def follow(call: OperatorCall, operator: Operator, result: Value) -> None:
    """Remember what the result of a node is made of, if that follows from its operands."""
    follower = FOLLOWERS.get(call.op_type)
    if follower is None or not isinstance(result, Tensor) or call.origins.of(result) is not None:
        return
    origin = follower(call, operator, result)
    if origin is not None:
        call.origins.note(result, origin)


def _operand(call: OperatorCall, index: int) -> Origin | None:
    value = call.operands[index] if index < len(call.operands) else None
    return call.origins.of(value) if isinstance(value, Tensor) else None


def _moved(call: OperatorCall, operator: Operator, result: Tensor) -> Origin | None:
    """Move the numbers as the floats are moved."""
    origin = _operand(call, 0)
    if origin is None or (part := origin.plain) is None or call.wants(1):
        return None
    try:
        moved = operator(replace(call, operands=[part.numbers, *call.operands[1:]]))
    except MISFITS:
        return None
    numbers = moved[0] if isinstance(moved, list | tuple) else moved
    if not isinstance(numbers, Tensor) or numbers.shape != result.shape:
        return None
    return Origin((Part(numbers, part.zero, part.scale),))


def _positive(call: OperatorCall, _: Operator, __: Tensor) -> Origin | None:
    origin = _operand(call, 0)
    return None if origin is None else replace(origin, positive=True)


def _added(call: OperatorCall, _: Operator, result: Tensor) -> Origin | None:
    both = [_operand(call, 0), _operand(call, 1)]
    parts: list[Part] = []
    for origin in both:
        if origin is None or origin.positive or origin.offset is not None:
            return None
        parts += origin.parts
    if len(parts) > MOST_PARTS or any(part.numbers.shape != result.shape for part in parts):
        return None
    return Origin(tuple(parts))


MOVING = (
    *("DepthToSpace", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice"),
    *("SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze"),
)
"""Operators on one tensor that only say which elements are where; or of some the largest."""

FOLLOWERS: Mapping[str, Follower] = {
    **dict.fromkeys(MOVING, _moved),
    "Add": _added,
    "Relu": _positive,
}
