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
    x, starts, ends = call.x(), call.x(1), call.x(2)
    sizes = [one.shape[0] for one in (starts, ends)]
    require(sizes == [len(axes)] * 2 and len(steps) == len(axes), "its ranges are not as many")
    for number, (given, step) in enumerate(zip(axes, steps, strict=True)):
        require(step != 0, "a step is 0")
        axis = axis_in(given, x.rank)
        places = [
            _place(x, axis, ops.cast(one[number], DType.int64), step) for one in (starts, ends)
        ]
        count = -ops.floordiv(places[0] - places[1], step)
        numbers = ops.counted(count, call.dim("slice"))
        x = ops.gather(x, numbers * step + places[0], axis)
    return x


def _place(x: Tensor, axis: int, given: Tensor, step: int) -> Tensor:
    """A place from the beginning, no further than a range in that direction reaches."""
    size = as_number(x.shape[axis], DType.int64)
    place = ops.where(ops.less(given, 0), given + size, given)
    low, high = (0, size) if step > 0 else (-1, size - 1)
    return ops.maximum(ops.minimum(place, high), low)
