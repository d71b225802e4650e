"""Determinants, by Gaussian elimination with the largest element of each column as the pivot."""

from __future__ import annotations

import numpy as np

from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

MOST_ROWS = 32
"""Rows of a matrix; each is a few operations of the graph."""


@operator("Det")
def determinant(call: OperatorCall) -> Tensor:
    """The determinant of each matrix ``[..., n, n]``."""
    x = call.x()
    square = x.rank >= 2 and x.shape[-2:].is_static and x.shape[-1] == x.shape[-2]
    require(square and x.dtype.is_float(), f"{x.type} are no square matrices of a known size")
    size = int(x.shape[-1])
    require(0 < size <= MOST_ROWS, f"matrices of {size} rows; 1 to {MOST_ROWS} are supported")
    left = ops.reshape(x, [x.shape[:-2].volume(), size, size])
    result = ops.cast(known(np.ones((1,))), x.dtype)
    for _ in range(size):
        pivot, sign, left = _eliminated(left)
        result = result * pivot * sign
    return ops.reshape(result, x.shape[:-2])


def _eliminated(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The pivot of the first column, the sign of the swap, and what is left without both."""
    size = int(x.shape[1])
    place = ops.reshape(ops.argmax(ops.abs(x[:, :, 0]), 1), [-1, 1])
    numbers = ops.reshape(ops.range(0, size), [1, -1])
    swapped = ops.where(ops.equal(numbers, place), 0, numbers)
    order = ops.where(ops.equal(numbers, 0), place, swapped)
    rows = ops.gather_nd(x, ops.unsqueeze(order, -1), batch_dims=1)
    sign = ops.cast(ops.where(ops.equal(place, 0), 1, -1), x.dtype)
    pivot = rows[:, 0, 0]
    if size == 1:
        return pivot, ops.reshape(sign, [-1]), x
    divisor = ops.reshape(ops.where(ops.equal(pivot, 0.0), 1.0, pivot), [-1, 1, 1])
    factors = rows[:, 1:, :1] / divisor
    return pivot, ops.reshape(sign, [-1]), rows[:, 1:, 1:] - factors * rows[:, :1, 1:]
