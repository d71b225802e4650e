"""Unique: the elements of a tensor without those that are there before."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require


@operator("Unique")
def unique(call: OperatorCall) -> list[Tensor]:
    """The elements, where each is first, which of them stands where, and how many of each."""
    x = call.x()
    plain = "axis" not in call.attributes or x.rank == 1
    require(plain, "distinct slices along an axis are not supported; those of all elements are")
    flat = ops.reshape(x, [x.shape.volume()])
    order = ops.argsort(flat, axis=0)
    inside = ops.gather(flat, order, 0)
    numbers = ops.range(0, flat.shape[0])
    before = ops.gather(inside, ops.maximum(numbers - 1, 0), 0)
    begins = ops.logical_or(ops.equal(numbers, 0), ops.not_equal(inside, before))
    found = ops.nonzero(begins, call.dim("unique"))
    starts = ops.reshape(found, [found.shape[0]])
    groups = ops.cumsum(ops.cast(begins, DType.int64), 0) - 1
    first = ops.gather(order, starts, 0)
    inverse = ops.scatter_nd(groups, groups, ops.unsqueeze(order, 1))
    none = ops.broadcast_to(ops.cast(0, DType.int64), [found.shape[0]])
    counts = ops.scatter_add(none, ops.cast(ops.equal(groups, groups), DType.int64), groups, 0)
    values = ops.gather(inside, starts, 0)
    if call.flag("sorted", 1):
        return [values, first, inverse, counts]
    sorting = ops.argsort(first, axis=0)
    ranks = ops.argsort(sorting, axis=0)
    kept = [ops.gather(one, sorting, 0) for one in (values, first, counts)]
    return [kept[0], kept[1], ops.gather(ranks, inverse, 0), kept[2]]
