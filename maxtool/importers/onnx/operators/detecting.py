"""Operators of detectors: the best of boxes that overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.operators.indexing import along
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known


@dataclass(frozen=True, slots=True)
class Corners:
    """Boxes by their corners, each ``[batch, classes, boxes]``."""

    top: Tensor
    left: Tensor
    bottom: Tensor
    right: Tensor

    def area(self) -> Tensor:
        """The area of each box."""
        return (self.bottom - self.top) * (self.right - self.left)


@operator("NonMaxSuppression")
def non_max_suppression(call: OperatorCall) -> Tensor:
    """The boxes that overlap no better one of their class too much: batch, class and number."""
    boxes, scores = call.x(0), call.x(1)
    require(scores.rank == 3 and boxes.rank == 3, "boxes and scores have three dimensions")
    order = ops.argsort(scores, ascending=False)
    ranked = along(scores, order, 2)
    corners = _in_order(boxes, order, centred=call.flag("center_point_box"))
    allowed = full(known(np.array(True)), [*scores.shape])
    if (least := call.maybe(4)) is not None:
        allowed = ops.greater(ranked, ops.reshape(least, []))
    limit = ops.reshape(call.x(3), []) if call.has(3) else known(np.zeros((), np.float32))
    kept = _suppressed(corners, allowed, limit)
    most = ops.reshape(call.x(2), []) if call.has(2) else known(np.zeros((), np.int64))
    counts = ops.cumsum(ops.cast(kept, DType.int64), 2)
    chosen = ops.logical_and(kept, ops.less_equal(counts, most))
    places = ops.nonzero(chosen, call.dim("boxes"))
    number = ops.reshape(ops.gather_nd(order, places), [places.shape[0], 1])
    return ops.concat([ops.slice_tensor(places, (slice(None), slice(0, 2))), number], 1)


def _in_order(boxes: Tensor, order: Tensor, *, centred: bool) -> Corners:
    """The corners of the boxes of each class in their order."""
    one = [ops.reshape(part, [part.shape[0], 1, part.shape[1]]) for part in ops.split(boxes, 1, 2)]
    spread = [along(ops.broadcast_to(part, order.shape), order, 2) for part in one]
    if centred:
        x, y, width, height = spread
        x, y, width, height = x, y, width * 0.5, height * 0.5
        return Corners(y - height, x - width, y + height, x + width)
    top, left, bottom, right = spread
    return Corners(
        ops.minimum(top, bottom),
        ops.minimum(left, right),
        ops.maximum(top, bottom),
        ops.maximum(left, right),
    )


def _suppressed(corners: Corners, allowed: Tensor, limit: Tensor) -> Tensor:
    """Return whether each box is kept: the best first, each removes those that overlap it."""
    count = allowed.shape[2]
    areas = corners.area()
    numbers = ops.reshape(ops.range(0, count), [1, 1, count])
    parts = (corners.top, corners.left, corners.bottom, corners.right, areas)

    def removing(step: Tensor, kept: Tensor) -> list[Tensor]:
        place = ops.reshape(step, [1])
        top, left, bottom, right, area = (ops.gather(part, place, 2) for part in parts)
        height = ops.minimum(bottom, corners.bottom) - ops.maximum(top, corners.top)
        width = ops.minimum(right, corners.right) - ops.maximum(left, corners.left)
        shared = ops.maximum(height, 0.0) * ops.maximum(width, 0.0)
        union = area + areas - shared
        overlaps = ops.greater(shared, union * limit)
        worse = ops.logical_and(overlaps, ops.greater(numbers, step))
        removed = ops.logical_and(worse, ops.gather(kept, place, 2))
        return [step + 1, ops.logical_and(kept, ops.logical_not(removed))]

    first = known(np.zeros((), np.int64))
    total = ops.reshape(ops.shape_to_tensor([count]), [])
    _, kept = ops.while_loop([first, allowed], lambda step, _: ops.less(step, total), removing)
    return kept
