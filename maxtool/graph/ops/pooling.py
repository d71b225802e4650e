"""Pools: the largest element, the mean or a norm of each window of an image.

Images are ``[batch, sizes..., channels]`` with one, two or three spatial dimensions.
"""

from __future__ import annotations

from typing import Any

from maxtool.dtype import BYTES, DType
from maxtool.graph.ops import elementwise
from maxtool.graph.ops.operation_table import apply, as_tensor, rule
from maxtool.graph.ops.require import require, require_floats
from maxtool.graph.ops.windows import SPATIAL, Sizes, Sliding, padding_of, sizes_of
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

# What a pool makes of a window, and its operations by the number of spatial dimensions.
_KINDS = ("max_pool", "max_pool_indices", "avg_pool", "sum_pool")
POOLS = {kind: tuple(f"{kind}{spatial}d" for spatial in SPATIAL) for kind in _KINDS}


@rule(*POOLS["max_pool"])
def _infer_largest(x: TensorType, *window: Any, **options: Any) -> tuple[TensorType, ...]:  # noqa: ANN401
    if x.dtype not in BYTES:
        require_floats(x)
    return _windows(x, *window, **options)


@rule(*POOLS["avg_pool"], *POOLS["sum_pool"])
def _infer_pool(x: TensorType, *window: Any, **options: Any) -> tuple[TensorType, ...]:  # noqa: ANN401
    require_floats(x)
    return _windows(x, *window, **options)


def _windows(
    x: TensorType,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_boundary: bool,  # noqa: ARG001 - part of the operation's signature
) -> tuple[TensorType, ...]:
    fits = x.rank == len(kernel) + 2 and x.shape[-1].is_static
    require(fits, f"the input is [batch, {SPATIAL[len(kernel)]}, channels]")
    require(min(kernel) > 0, "a window has rows and columns")
    covered = all(max(padding[2 * i : 2 * i + 2]) < size for i, size in enumerate(kernel))
    require(covered or not any(padding), "padding is smaller than a window")
    sizes = Sliding(kernel, stride, dilation, padding).counts(x, ceil_mode=ceil_mode)
    return (TensorType(x.dtype, [x.shape[0], *sizes, x.shape[-1]], x.device),)


@rule(*POOLS["max_pool_indices"])
def _infer_indices(
    x: TensorType,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_boundary: bool,
) -> tuple[TensorType, ...]:
    (pooled,) = _infer_pool(x, kernel, stride, dilation, padding, ceil_mode, count_boundary)
    return (TensorType(DType.int64, pooled.shape, x.device),)


def max_pool1d(
    input: TensorLike,  # noqa: A002 - the name of the others
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
) -> Tensor:
    """The maximum of each window of ``[batch, length, channels]``, like `max_pool2d`."""
    return _pool("max_pool1d", input, (kernel_size, stride, dilation, padding), ceil_mode)


def max_pool2d(
    input: TensorLike,  # noqa: A002 - the reference API's name
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
) -> Tensor:
    """The maximum of each window of ``[batch, height, width, channels]``; padding never wins."""
    return _pool("max_pool2d", input, (kernel_size, stride, dilation, padding), ceil_mode)


def max_pool3d(
    input: TensorLike,  # noqa: A002
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
) -> Tensor:
    """The maximum of each window of ``[batch, depth, height, width, channels]``."""
    return _pool("max_pool3d", input, (kernel_size, stride, dilation, padding), ceil_mode)


def max_pool_indices(
    input: TensorLike,  # noqa: A002
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
) -> Tensor:
    """The place of the maximum of each window of ``[batch, sizes..., channels]``, of any rank.

    The result is int64: the place in the image, with its spatial dimensions as one; of equal
    elements the first, and of NaN the first. Options are those of `max_pool2d`.
    """
    x = as_tensor(input)
    name = f"max_pool_indices{min(max(x.rank - 2, 1), 3)}d"
    return _pool(name, x, (kernel_size, stride, dilation, padding), ceil_mode)


def avg_pool1d(
    input: TensorLike,  # noqa: A002
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
) -> Tensor:
    """The mean of each window of ``[batch, length, channels]``, like `avg_pool2d`."""
    sizes = (kernel_size, stride, dilation, padding)
    return _pool("avg_pool1d", input, sizes, ceil_mode, count_boundary)


def avg_pool2d(
    input: TensorLike,  # noqa: A002
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
) -> Tensor:
    """The mean of each window of ``[batch, height, width, channels]``.

    Args:
        input: Floats.
        kernel_size: Of the window, (height, width) or one number for both, as all below.
        stride: Pixels from one window to the next.
        dilation: Pixels from one row or column of a window to the next.
        padding: Zeros around: (above, below, left, right), (height, width) or one number.
        ceil_mode: Whether a last window that reaches beyond the padding is computed too.
        count_boundary: Whether the padding counts in the divisor.
    """
    sizes = (kernel_size, stride, dilation, padding)
    return _pool("avg_pool2d", input, sizes, ceil_mode, count_boundary)


def avg_pool3d(
    input: TensorLike,  # noqa: A002
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
) -> Tensor:
    """The mean of each window of ``[batch, depth, height, width, channels]``, like `avg_pool2d`."""
    sizes = (kernel_size, stride, dilation, padding)
    return _pool("avg_pool3d", input, sizes, ceil_mode, count_boundary)


def lp_pool(
    input: TensorLike,  # noqa: A002
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    p: int = 2,
) -> Tensor:
    """The norm ``sum(|x| ** p) ** (1 / p)`` of each window of ``[batch, sizes..., channels]``.

    Types of 16 bits are computed in float32. Options are those of `max_pool2d`.

    Raises:
        ValueError: If the operands do not fit, or ``p`` is less than 1.
    """
    require(p >= 1, f"a norm of order {p}; it is at least 1")
    x = as_tensor(input)
    wide = x.dtype if x.dtype is DType.float64 else DType.float32
    sizes = (kernel_size, stride, dilation, padding)
    powers = elementwise.pow(elementwise.abs(elementwise.cast(x, wide)), float(p))
    sums = _pool(f"sum_pool{min(max(x.rank - 2, 1), 3)}d", powers, sizes, ceil_mode)
    return elementwise.cast(elementwise.pow(sums, 1 / p), x.dtype)


def _pool(
    name: str,
    x: TensorLike,
    sizes: tuple[Sizes, Sizes, Sizes, Sizes],
    ceil_mode: bool,
    counts: bool = False,
) -> Tensor:
    """Apply the operation of a name, which ends with the number of spatial dimensions."""
    spatial = int(name[-2])
    kernel, stride, dilation = (sizes_of(setting, spatial) for setting in sizes[:3])
    return apply(
        name,
        x,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=padding_of(sizes[3], spatial),
        ceil_mode=bool(ceil_mode),
        count_boundary=bool(counts),
    )[0]
