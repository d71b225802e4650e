"""The largest elements and their places, and the places of all in order."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from maxtool.dtype import DType
from maxtool.graph.dim import Dim
from maxtool.graph.ops.axes import axes_of, axis_of
from maxtool.graph.ops.operation_table import apply, as_tensor, rule
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("top_k")
def _infer_top_k(x: TensorType, axes: tuple[int, ...], k: int) -> tuple[TensorType, ...]:
    (axis,) = axes
    _require_order(x)
    require(0 <= axis < x.rank, f"there is no axis {axis} in {x.rank} dimensions")
    size = x.shape[axis]
    if k < 0 or (size.is_static and k > int(size)):
        raise ValueError(f"axis {axis} is not known to have {k} elements; its size is {size}")
    sizes = [*x.shape[:axis], Dim(k), *x.shape[axis + 1 :]]
    return tuple(TensorType(dtype, sizes, x.device) for dtype in (x.dtype, DType.int64))


@rule("argsort")
def _infer_argsort(
    x: TensorType,
    axes: tuple[int, ...],  # noqa: ARG001 - part of the operation's signature
    ascending: bool,  # noqa: ARG001
) -> tuple[TensorType, ...]:
    _require_order(x)
    return (TensorType(DType.int64, x.shape, x.device),)


def _require_order(x: TensorType) -> None:
    if x.dtype is DType.bool or x.dtype.value.startswith("float8"):
        raise ValueError(f"needs numbers of at least 16 bits or integers, not {x.dtype.value}")


def top_k(input: TensorLike, k: int, axis: SupportsIndex = -1) -> tuple[Tensor, Tensor]:  # noqa: A002
    """The ``k`` largest elements along ``axis``, the largest first, and their places (int64).

    The first of equal elements comes first, and NaN before every number. Meant for a small ``k``:
    all elements are read once for each.
    """
    tensor = input if isinstance(input, Tensor) else Tensor(input)
    values, places = apply("top_k", tensor, axes=axes_of(tensor, index(axis)), k=index(k))
    return values, places


def argsort(x: TensorLike, ascending: bool = True, axis: SupportsIndex = -1) -> Tensor:
    """The places (int64) of all elements along ``axis`` in order.

    The first of equal elements comes first; NaN is above every number.

    Raises:
        ValueError: If there is no such dimension, or the elements have no order.
    """
    tensor = as_tensor(x)
    axes = (axis_of("argsort", tensor, axis),)
    return apply("argsort", tensor, axes=axes, ascending=bool(ascending))[0]
