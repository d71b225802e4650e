"""Operations that make one element out of many: sums, extremes and where these are.

A reduced dimension stays, with size 1; all elements (``axis=None``) make a vector of one. What
float16 and bfloat16 add up is added in float32.
"""

from __future__ import annotations

import builtins
from typing import SupportsIndex

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, Shape
from maxtool.graph.ops.axes import axes_of, axis_of
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_bool, require_numbers
from maxtool.graph.tensor import Axes, Tensor, TensorLike
from maxtool.graph.type import TensorType

__all__ = ["all", "any", "logsumexp", "max", "mean", "min", "prod", "sum"]
__all__ += ["argmax", "argmin", "cumsum"]

REDUCTIONS = ("all", "any", "logsumexp", "max", "mean", "min", "prod", "sum")
INDICES = ("argmax", "argmin")


@rule("prod", "sum")
def _infer_reduction(tensor_type: TensorType, axes: tuple[int, ...]) -> tuple[TensorType, ...]:
    require_numbers(tensor_type)
    return (_reduced(tensor_type, axes),)


@rule("logsumexp", "mean")
def _infer_float(tensor_type: TensorType, axes: tuple[int, ...]) -> tuple[TensorType, ...]:
    dtype = tensor_type.dtype
    require(dtype.is_float(), f"needs floating-point operands, not {dtype.value}")
    return _infer_reduction(tensor_type, axes)


@rule("any", "all")
def _infer_logical(tensor_type: TensorType, axes: tuple[int, ...]) -> tuple[TensorType, ...]:
    require_bool(tensor_type)
    return (_reduced(tensor_type, axes),)


@rule("max", "min")
def _infer_extreme(tensor_type: TensorType, axes: tuple[int, ...]) -> tuple[TensorType, ...]:
    _require_something(tensor_type, axes)
    return _infer_reduction(tensor_type, axes)


@rule("argmax", "argmin")
def _infer_index(tensor_type: TensorType, axes: tuple[int, ...]) -> tuple[TensorType, ...]:
    _require_something(tensor_type, axes)
    (result,) = _infer_reduction(tensor_type, axes)
    return (TensorType(DType.int64, result.shape, result.device),)


@rule("cumsum")
def _infer_cumsum(
    tensor_type: TensorType,
    axes: tuple[int, ...],
    exclusive: bool,  # noqa: ARG001 - part of the operation's signature
    reverse: bool,  # noqa: ARG001
) -> tuple[TensorType, ...]:
    require_numbers(tensor_type)
    _reduced(tensor_type, axes)
    return (TensorType(tensor_type.dtype, tensor_type.shape, tensor_type.device),)


def _require_something(tensor_type: TensorType, axes: tuple[int, ...]) -> None:
    _reduced(tensor_type, axes)
    nothing = builtins.any(tensor_type.shape[axis] == 0 for axis in axes)
    require(not nothing, f"there is no element along {_named(axes)}")


def _reduced(tensor_type: TensorType, axes: tuple[int, ...]) -> TensorType:
    there = builtins.all(0 <= axis < tensor_type.rank for axis in axes)
    require(there, f"there is no {_named(axes)} in {tensor_type.rank} dimensions")
    require(len(set(axes)) == len(axes), f"{_named(axes)} names a dimension twice")
    sizes = [Dim(1) if axis in axes else dim for axis, dim in enumerate(tensor_type.shape)]
    return TensorType(tensor_type.dtype, sizes, tensor_type.device)


def _named(axes: tuple[int, ...]) -> str:
    listed = ", ".join(str(axis) for axis in axes)
    return f"axis {listed}" if len(axes) == 1 else f"axes {listed}"


def reduce(name: str, x: TensorLike, axis: Axes) -> Tensor:
    """One of ``REDUCTIONS`` and ``INDICES`` over one or several dimensions of ``x``.

    With None it is over all elements as if in a vector, so that the result is ``[1]``.
    """
    tensor = x if isinstance(x, Tensor) else Tensor(x)
    (result,) = apply(name, tensor, axes=axes_of(tensor, axis))
    return result if axis is not None else apply("reshape", result, shape=Shape([1]))[0]


def sum(x: TensorLike, axis: Axes = -1) -> Tensor:  # noqa: A001 - the operation's name
    """The sum along ``axis``, 0 of nothing. Integers wrap around, as the type of ``x`` does."""
    return reduce("sum", x, axis)


def mean(x: TensorLike, axis: Axes = -1) -> Tensor:
    """The mean of floats along ``axis``, NaN of nothing."""
    return reduce("mean", x, axis)


def logsumexp(x: TensorLike, axis: Axes = -1) -> Tensor:
    """``log(sum(exp(x)))`` of floats along ``axis``, computed so that nothing overflows.

    That of nothing is ``-inf``; an infinite largest element is the result.
    """
    return reduce("logsumexp", x, axis)


def prod(x: TensorLike, axis: Axes = -1) -> Tensor:
    """The product along ``axis``, 1 of nothing. Integers wrap around."""
    return reduce("prod", x, axis)


def max(x: TensorLike, y: TensorLike | None = None, /, axis: Axes = -1) -> Tensor:  # noqa: A001
    """The largest element along ``axis``; with ``y``, the larger of two elements each.

    NaN where there is one; the least number of the type where a call brings no element.
    """
    return reduce("max", x, axis) if y is None else apply("maximum", x, y)[0]


def min(x: TensorLike, y: TensorLike | None = None, /, axis: Axes = -1) -> Tensor:  # noqa: A001
    """The smallest element along ``axis``; with ``y``, the smaller of two elements each.

    NaN where there is one; the largest number of the type where a call brings no element.
    """
    return reduce("min", x, axis) if y is None else apply("minimum", x, y)[0]


def any(x: TensorLike, axis: Axes = -1) -> Tensor:  # noqa: A001
    """Return whether something along ``axis`` is true; False of nothing."""
    return reduce("any", x, axis)


def all(x: TensorLike, axis: Axes = -1) -> Tensor:  # noqa: A001
    """Return whether everything along ``axis`` is true; True of nothing."""
    return reduce("all", x, axis)


def argmax(x: TensorLike, axis: SupportsIndex | None = -1) -> Tensor:
    """Return the index of the largest element along ``axis``: int64, first of ties, NaN largest.

    With None, ``[1]``: its place among all elements in row-major order.
    """
    return reduce("argmax", x, axis)


def argmin(x: TensorLike, axis: SupportsIndex | None = -1) -> Tensor:
    """Return the index of the smallest element along ``axis``, like `argmax`; NaN is smallest."""
    return reduce("argmin", x, axis)


def cumsum(
    x: TensorLike, axis: SupportsIndex = -1, exclusive: bool = False, reverse: bool = False
) -> Tensor:
    """The sum of all elements along ``axis`` up to each.

    Args:
        x: Numbers.
        axis: A dimension.
        exclusive: Whether the element itself is left out.
        reverse: Whether the sums run from the last element.
    """
    tensor = x if isinstance(x, Tensor) else Tensor(x)
    options = {"exclusive": bool(exclusive), "reverse": bool(reverse)}
    return apply("cumsum", tensor, axes=(axis_of("cumsum", tensor, axis),), **options)[0]
