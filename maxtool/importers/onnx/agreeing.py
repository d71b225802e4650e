"""Operands whose sizes have to agree, and are known by different names: calls are held to it.

Exporters name a size once more wherever they cannot follow it, and a sum of two branches of a
network fits only where the sizes of images are multiples of some number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from maxtool.graph import Dim, Tensor, ops
from maxtool.importers.onnx.values import Value

# Places of dimensions that have to agree: the number of an operand, and the dimension; and
# whether those of size 1 are left out, as they are repeated.
Group: TypeAlias = "tuple[list[tuple[int, int]], bool]"
Groups: TypeAlias = Iterator[Group]

ELEMENTWISE = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu",
    "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip


def agreed(op_type: str, operands: Sequence[Value], attributes: Mapping[str, Any]) -> list[Value]:
    """The operands of a node, with claims where sizes of different names have to be the same."""
    groups = GROUPS.get(op_type)
    tensors = [one for one in operands if isinstance(one, Tensor)]
    if groups is None or all(one.shape.is_static for one in tensors):
        return [*operands]
    shapes = [[*one.shape] if isinstance(one, Tensor) else [] for one in operands]
    before = [[*shape] for shape in shapes]
    for group in groups(shapes, attributes):
        _agree(shapes, group)
    return [
        one if shape == old or not isinstance(one, Tensor) else _claimed(op_type, one, shape)
        for one, shape, old in zip(operands, shapes, before, strict=True)
    ]


def _claimed(op_type: str, x: Tensor, shape: Sequence[Dim]) -> Tensor:
    return ops.rebind(x, shape, f"{op_type} needs operands whose sizes agree")


def _agree(shapes: Sequence[list[Dim]], group: Group) -> None:
    """Give the dimensions of a group one size: a number if there is one."""
    places, repeats = group
    meant = [(at, axis) for at, axis in places if not (repeats and shapes[at][axis] == 1)]
    known = dict.fromkeys(shapes[at][axis] for at, axis in meant)
    numbers = [dim for dim in known if dim.is_static]
    if len(known) < 2 or len(numbers) > 1:
        return
    (size, *_) = [*numbers, *known]
    for at, axis in meant:
        shapes[at][axis] = size


def _broadcast(shapes: Sequence[Sequence[Dim]], _: Mapping[str, Any]) -> Groups:
    """Dimensions as they are aligned from the last on."""
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        places = [(at, len(shape) - axis) for at, shape in enumerate(shapes) if len(shape) >= axis]
        yield places, True


def _joined(shapes: Sequence[Sequence[Dim]], attributes: Mapping[str, Any]) -> Groups:
    """All dimensions but the one along which tensors are joined."""
    rank, axis = len(shapes[0]), attributes.get("axis")
    if not isinstance(axis, int) or not rank or any(len(shape) != rank for shape in shapes):
        return
    for at in range(rank):
        if at != axis % rank:
            yield [(number, at) for number in range(len(shapes))], False


def _product(shapes: Sequence[Sequence[Dim]], attributes: Mapping[str, Any]) -> Groups:
    """The dimensions of the sums, and those in front of matrices."""
    left, right = map(len, shapes)
    if left and right:
        yield [(0, left - 1), (1, max(right - 2, 0))], False
        yield from _broadcast([shape[:-2] for shape in shapes], attributes)


def _recurrent(shapes: Sequence[Sequence[Dim]], attributes: Mapping[str, Any]) -> Groups:
    """The batches of the sequence, its lengths and the states."""
    at = 0 if attributes.get("layout") == 1 else 1
    places = [(0, at), (4, 0), (5, at), (6, at)]
    yield [one for one in places if one[0] < len(shapes) and len(shapes[one[0]]) > one[1]], False


GROUPS: Mapping[str, Callable[[Sequence[Sequence[Dim]], Mapping[str, Any]], Groups]] = {
    **dict.fromkeys(ELEMENTWISE, _broadcast),
    "Concat": _joined,
    "MatMul": _product,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
}
"""By operator, the groups of dimensions that have to agree."""
