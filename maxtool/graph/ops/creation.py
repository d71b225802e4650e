"""Tensors made from sizes and numbers: sequences, shapes, and bands of a matrix."""

from __future__ import annotations

from functools import reduce
from typing import SupportsIndex

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Dim, DimLike, Shape, ShapeLike
from maxtool.graph.ops import comparison
from maxtool.graph.ops.elementwise import mul, sub
from maxtool.graph.ops.layout import unsqueeze
from maxtool.graph.ops.operation_table import apply, as_tensor, rule
from maxtool.graph.ops.require import require, require_numbers
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("range")
def _infer_range(start: TensorType, step: TensorType, size: Dim) -> tuple[TensorType, ...]:
    require(start.rank == step.rank == 0, "start and step are one number each")
    require(start.dtype is step.dtype, "start and step are of one type")
    require_numbers(start)
    return (TensorType(start.dtype, [size], start.device),)


@rule("shape_to_tensor")
def _infer_shape(shape: Shape, device: DeviceRef | None = None) -> tuple[TensorType, ...]:
    return (TensorType(DType.int64, [shape.rank], device),)


def range(  # noqa: A001 - the operation's name
    start: TensorLike | Dim,
    stop: TensorLike | Dim,
    step: TensorLike = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> Tensor:
    """The numbers from ``start`` up to, and without, ``stop``.

    Args:
        start: The first number.
        stop: The end; a number, a dimension, or a tensor of one element.
        step: From one number to the next; it may be negative.
        out_dim: How many numbers there are, where it does not follow: if one of them is a tensor
            that is known only when the graph runs. It must be what the three say.
        dtype: The element type; int64 for whole numbers and float32 for others when absent.
        device: Where it is; the host when absent.

    Raises:
        ValueError: If the step is 0, or the count does not follow and is not given.
    """
    if out_dim is None and isinstance(stop, Dim) and not stop.is_static:
        first, by = _whole(start, "start"), _whole(step, "step")
        if by < 1:
            raise ValueError(f"range: a step of {by} up to {stop}; it must be above 0")
        out_dim = (stop - first + (by - 1)) // by
    if out_dim is None:
        return _known_range(start, stop, step, dtype, device)
    natural = DType.int64 if isinstance(stop, Dim) else None
    ends = [_scalar(end, dtype or natural, device) for end in (start, step)]
    return apply("range", *ends, size=Dim(out_dim))[0]


arange = range


def _whole(number: TensorLike | Dim, name: str) -> int:
    if not isinstance(number, SupportsIndex):
        raise ValueError(f"range: {name} is a whole number where the end is a dimension")
    return number.__index__()


def _scalar(number: TensorLike | Dim, dtype: DType | None, device: DeviceRef | None) -> Tensor:
    if isinstance(number, Tensor):
        return number if dtype is None else number.cast(dtype)
    plain = int(number) if isinstance(number, Dim) else number
    return Tensor.natural(plain, device) if dtype is None else Tensor(plain, dtype, device)


def _known_range(
    start: TensorLike | Dim,
    stop: TensorLike | Dim,
    step: TensorLike,
    dtype: DType | None,
    device: DeviceRef | None,
) -> Tensor:
    numbers = [as_tensor(int(one) if isinstance(one, Dim) else one) for one in (start, stop, step)]
    if any(one.is_traced for one in numbers):
        raise ValueError("range: out_dim says how many numbers there are; an end is traced")
    if not numbers[2].item():
        raise ValueError("range: the step is not 0")
    natural = next((one.dtype for one in numbers if one.dtype.is_float()), DType.int64)
    values = np.arange(*(end.item() for end in numbers))
    return Tensor(values.astype((dtype or natural).to_numpy()), device=device)


def shape_to_tensor(shape: ShapeLike) -> Tensor:
    """The sizes as an int64 tensor of one dimension.

    Raises:
        ValueError: If there is a name in it and no graph is being traced.
    """
    sizes = Shape(shape)
    if sizes.is_static:
        return Tensor(np.array(sizes.static(), np.int64))
    return apply("shape_to_tensor", shape=sizes)[0]


def outer(lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """Each element of one vector times each of another: ``[n]``, ``[m]`` to ``[n, m]``.

    Raises:
        ValueError: If one of them is no vector.
    """
    left, right = as_tensor(lhs), as_tensor(rhs)
    if left.rank != 1 or right.rank != 1:
        raise ValueError(f"outer({left.type}, {right.type}): needs two vectors")
    return mul(unsqueeze(left, 1), unsqueeze(right, 0))


def band_part(
    x: TensorLike, num_lower: int | None = None, num_upper: int | None = None, exclude: bool = False
) -> Tensor:
    """The last two dimensions with everything outside of a band around the diagonal set to 0.

    Args:
        x: ``[..., rows, columns]``.
        num_lower: How many diagonals below the main one belong to it; None for all.
        num_upper: How many above it.
        exclude: Whether the band is set to 0 instead, and the rest is kept.

    Raises:
        ValueError: If there are no two dimensions, or a number is negative.
    """
    tensor = as_tensor(x)
    limits = [limit for limit in (num_lower, num_upper) if limit is not None]
    if tensor.rank < 2 or min(limits, default=0) < 0:
        raise ValueError(f"band_part({tensor.type}): needs two dimensions, and numbers from 0 on")
    rows, columns = (range(0, size) for size in tensor.shape[-2:])
    below = sub(unsqueeze(rows, 1), unsqueeze(columns, 0))
    inside = [comparison.less_equal(below, num_lower)] if num_lower is not None else []
    inside += [comparison.greater_equal(below, -num_upper)] if num_upper is not None else []
    if not inside:
        inside = [comparison.equal(below, below)]
    band = reduce(comparison.logical_and, inside)
    kept = comparison.logical_not(band) if exclude else band
    return comparison.where(kept, tensor, False if tensor.dtype is DType.bool else 0)
