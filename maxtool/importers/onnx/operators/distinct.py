"""Unique: the elements of a tensor, or its slices along an axis, without those that repeat."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph import Shape, Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator


@operator("Unique")
def unique(call: OperatorCall) -> list[Tensor]:
    """The elements or slices, where each is first, which of them stands where, how many of each."""
    x = call.x()
    if "axis" in call.attributes:
        axis = call.axis(x.rank)
        rows = _rows(x, axis)
    else:
        axis, x = 0, ops.reshape(x, [x.shape.volume()])
        rows = ops.unsqueeze(x, 1)
    order = _in_order(rows)
    inside = ops.gather(rows, order, 0)
    numbers = ops.range(0, rows.shape[0])
    before = ops.gather(inside, ops.maximum(numbers - 1, 0), 0)
    differs = ops.reshape(ops.any(ops.not_equal(inside, before), 1), [rows.shape[0]])
    begins = ops.logical_or(ops.equal(numbers, 0), differs)
    found = ops.nonzero(begins, call.dim("unique"))
    starts = ops.reshape(found, [found.shape[0]])
    groups = ops.cumsum(ops.cast(begins, DType.int64), 0) - 1
    first = ops.gather(order, starts, 0)
    inverse = ops.scatter_nd(groups, groups, ops.unsqueeze(order, 1))
    none = ops.broadcast_to(ops.cast(0, DType.int64), [found.shape[0]])
    counts = ops.scatter_add(none, ops.cast(ops.equal(groups, groups), DType.int64), groups, 0)
    if call.flag("sorted", 1):
        return [ops.gather(x, first, axis), first, inverse, counts]
    sorting = ops.argsort(first, axis=0)
    ranks = ops.argsort(sorting, axis=0)
    first, counts = (ops.gather(one, sorting, 0) for one in (first, counts))
    return [ops.gather(x, first, axis), first, ops.gather(ranks, inverse, 0), counts]


def _rows(x: Tensor, axis: int) -> Tensor:
    """Slices along an axis as rows ``[slices, elements]``."""
    others = [dim for dim in range(x.rank) if dim != axis]
    moved = ops.permute(x, [axis, *others])
    return ops.reshape(moved, [x.shape[axis], Shape(x.shape[dim] for dim in others).volume()])


def _in_order(rows: Tensor) -> Tensor:
    """The places of rows in lexicographic order: sorted by each column, the first one last.

    Each sorting keeps the order of equal elements.
    """
    count, columns = rows.shape
    if columns == 1:
        return ops.argsort(ops.reshape(rows, [count]), axis=0)

    def sorted_by(column: Tensor, order: Tensor) -> list[Tensor]:
        elements = ops.gather(rows, ops.reshape(column, [1]), 1)
        here = ops.gather(ops.reshape(elements, [count]), order, 0)
        return [column - 1, ops.gather(order, ops.argsort(here, axis=0), 0)]

    last = ops.reshape(ops.shape_to_tensor([columns]), []) - 1
    start = [last, ops.range(0, count)]
    return ops.while_loop(start, lambda column, _: ops.greater_equal(column, 0), sorted_by)[1]
