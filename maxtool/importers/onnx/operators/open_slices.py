"""Slices whose ends the data say, so that a call alone knows how long they are."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.graph.ops.operation_table import as_number
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.refusals import require


def open_slice(call: OperatorCall, axes: Sequence[int], steps: Sequence[int]) -> Tensor:
    """A slice along some axes, from places of input 1 to those of input 2."""
    x, bounds = call.x(), [call.x(1), call.x(2)]
    require(all(one.rank == 1 for one in bounds), "the ends of its ranges are lists")
    sizes = {dim for one in bounds for dim in one.shape if dim.is_static}
    require(sizes <= {len(axes)} and len(steps) == len(axes), "its ranges are not as many")
    starts, ends = (ops.rebind(ops.cast(one, DType.int64), [len(axes)]) for one in bounds)
    for number, (given, step) in enumerate(zip(axes, steps, strict=True)):
        require(step != 0, "a step is 0")
        axis = axis_in(given, x.rank)
        size = as_number(x.shape[axis], DType.int64)
        start, end = (_from_begin(one[number], size) for one in (starts, ends))
        if step > 0:
            start, end = (ops.minimum(ops.maximum(one, 0), size) for one in (start, end))
        else:  # it begins inside, and ends before the first element at most
            start = ops.minimum(ops.maximum(start, 0), size - 1)
            end = ops.minimum(ops.maximum(end, -1), size - 1)
        numbers = ops.counted(-ops.floordiv(start - end, step), call.dim("slice"))
        x = ops.gather(x, numbers * step + start, axis)
    return x


def _from_begin(given: Tensor, size: Tensor) -> Tensor:
    """A place, of which negative ones are counted from the end."""
    return ops.where(ops.less(given, 0), given + size, given)
