"""Convolutions of bytes with bytes, whose sums are int32; the channels come last."""

from __future__ import annotations

from math import prod

from maxtool.dtype import BYTES, DType
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require
from maxtool.graph.ops.windows import SPATIAL, Sizes, Sliding, padding_of, sizes_of
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType

MOST_TERMS = 1 << 16
"""Terms of a sum: so many products of bytes fit int32, whatever they are."""


@rule("integer_convolution")
def _infer(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    zero: int,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    groups: int,
) -> tuple[TensorType, ...]:
    count = len(stride)
    require(x.dtype in BYTES, f"images are of int8 or uint8, not {x.dtype.value}")
    require(weight.dtype is DType.int8, f"the filter is of int8, not {weight.dtype.value}")
    require(bias.dtype is DType.int32, f"the bias is of int32, not {bias.dtype.value}")
    limits = (-128, 127) if x.dtype is DType.int8 else (0, 255)
    require(limits[0] <= zero <= limits[1], f"no {x.dtype.value} is {zero}")
    names = SPATIAL[count]
    require(x.rank == count + 2, f"the input is [batch, {names}, channels]")
    fits = weight.rank == count + 2 and weight.shape.is_static and 0 not in weight.shape
    require(fits, f"the filter is [{names}, channels, features], none of them 0 or unknown")
    *kernel, inner, features = weight.shape.static()
    require(prod(kernel) * inner <= MOST_TERMS, f"a sum has more than {MOST_TERMS} terms")
    require(groups > 0 and features % groups == 0, f"{features} features in {groups} groups")
    require(x.shape[-1] == inner * groups, f"the input has {inner * groups} channels")
    require(bias.shape == [features], f"the bias has shape [{features}]")
    sizes = Sliding(tuple(kernel), stride, dilation, padding).counts(x)
    return (TensorType(DType.int32, [x.shape[0], *sizes, features], x.device),)


def integer_convolution(
    x: Tensor,
    filter: Tensor,  # noqa: A002 - as the convolutions of floats
    zero: int = 0,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: Tensor | None = None,
) -> Tensor:
    """Convolve bytes less their zero point with a filter of bytes; sums are exact.

    Args:
        x: ``[batch, ..., channels]`` with 1 to 3 spatial dimensions, int8 or uint8.
        filter: ``[..., channels / groups, features]``, int8; of up to 65536 terms of a feature.
        zero: What stands for 0 in ``x``, and is around it.
        stride: Pixels from one window to the next, one number or one of each dimension.
        dilation: Pixels from one place of a window to the next, likewise.
        padding: Pixels around, two numbers of each dimension, one or one for all.
        groups: Parts of the channels, each convolved for itself with its part of the filters.
        bias: ``[features]``, int32, added; what goes beyond int32 then wraps around.

    Returns:
        ``[batch, ..., features]``, int32.

    Raises:
        ValueError: If the operands do not fit.
    """
    count = x.rank - 2
    require(count in SPATIAL, "integer_convolution: the input has 1 to 3 spatial dimensions")
    known = filter.rank > 0 and filter.shape[-1].is_static
    features = filter.shape[-1] if known else 0
    return apply(
        "integer_convolution",
        x,
        filter,
        Tensor.zeros([features], DType.int32, filter.device) if bias is None else bias,
        zero=int(zero),
        stride=sizes_of(stride, count),
        dilation=sizes_of(dilation, count),
        padding=padding_of(padding, count),
        groups=int(groups),
    )[0]
