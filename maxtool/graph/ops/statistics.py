"""Distances of elements from their mean."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, Shape
from maxtool.graph.ops import reduction
from maxtool.graph.ops.axes import axes_of
from maxtool.graph.ops.elementwise import cast, div, maximum, mul, sqrt, sub
from maxtool.graph.ops.operation_table import as_number, as_tensor
from maxtool.graph.ops.require import NARROW_FLOATS
from maxtool.graph.tensor import Axes, Tensor, TensorLike


def variance(x: TensorLike, axis: Axes = -1, correction: float = 0) -> Tensor:
    """The mean of the squared distances from the mean along ``axis``, which stays with size 1.

    Of all elements (None) it is ``[1]``. Floats of 16 bits are computed in float32.

    Args:
        x: Floats.
        axis: One, several or (None) all dimensions.
        correction: What is taken from the number of elements before it divides the sum of squares:
            1 for the estimate from a sample.

    Raises:
        ValueError: If there is no such dimension, or the elements are no floats.
    """
    tensor = as_tensor(x)
    wide = cast(tensor, DType.float32) if tensor.dtype in NARROW_FLOATS else tensor
    distance = sub(wide, reduction.mean(wide, axis))
    total = reduction.sum(mul(distance, distance), axis)
    count = Shape([tensor.shape[one] for one in axes_of(tensor, axis)]).volume()
    value = div(total, _degrees(count, correction, wide))
    return cast(value, tensor.dtype) if value.dtype is not tensor.dtype else value


def _degrees(count: Dim, correction: float, beside: Tensor) -> Tensor:
    return maximum(sub(as_number(count, beside.dtype, beside.device), float(correction)), 0.0)


def std(x: TensorLike, axis: Axes = -1, correction: float = 0) -> Tensor:
    """The square root of the :func:`variance`."""
    return sqrt(variance(x, axis, correction))
