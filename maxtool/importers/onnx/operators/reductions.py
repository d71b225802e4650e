"""Operators that make one element out of many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.operators.shaping import axes_given
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

Reduce = Callable[[Tensor, list[int]], Tensor]


def _extreme(name: str) -> Reduce:
    """The largest or smallest element; of nothing the end of the type's numbers."""

    def reduced(x: Tensor, axes: list[int]) -> Tensor:
        if x.dtype is DType.bool:
            return (ops.any if name == "max" else ops.all)(x, axes)
        if any(x.shape[axis] == 0 for axis in axes):
            sizes = [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
            return full(known(_end(x.dtype, name)), sizes)
        return (ops.max if name == "max" else ops.min)(x, axis=axes)

    return reduced


def _end(dtype: DType, name: str) -> NDArray[Any]:
    kind = dtype.to_numpy()
    if dtype.is_float():
        return np.array(-np.inf if name == "max" else np.inf, kind)
    limits = np.iinfo(kind)
    return np.array(limits.min if name == "max" else limits.max, kind)


def _mean(x: Tensor, axes: list[int]) -> Tensor:
    if x.dtype.is_float():
        return ops.mean(x, axes)
    return ops.cast(ops.mean(ops.cast(x, DType.float64), axes), x.dtype)


def _log_of_sum(x: Tensor, axes: list[int]) -> Tensor:
    return ops.log(ops.sum(x, axes))


def _of_floats(reduce: Reduce) -> Reduce:
    """A reduction of whole numbers too, computed in float32 and cut to their type."""

    def reduced(x: Tensor, axes: list[int]) -> Tensor:
        if x.dtype.is_float():
            return reduce(x, axes)
        return ops.cast(reduce(ops.cast(x, DType.float64), axes), x.dtype)

    return reduced


REDUCTIONS: Mapping[str, Reduce] = {
    "ReduceL1": lambda x, axes: ops.sum(ops.abs(x), axes),
    "ReduceL2": _of_floats(lambda x, axes: ops.sqrt(ops.sum(x * x, axes))),
    "ReduceLogSum": _of_floats(_log_of_sum),
    "ReduceLogSumExp": _of_floats(lambda x, axes: ops.logsumexp(x, axes)),
    "ReduceMax": _extreme("max"),
    "ReduceMean": _mean,
    "ReduceMin": _extreme("min"),
    "ReduceProd": lambda x, axes: ops.prod(x, axes),
    "ReduceSum": lambda x, axes: ops.sum(x, axes),
    "ReduceSumSquare": lambda x, axes: ops.sum(x * x, axes),
}
"""Reductions that keep the dimensions, with size 1."""


@operator(*REDUCTIONS)
def reduce(call: OperatorCall) -> Tensor:
    """Apply one of ``REDUCTIONS`` over axes: all of them where none is named."""
    x, given = call.x(), axes_given(call, [])
    if not given and call.flag("noop_with_empty_axes"):
        return UNREDUCED[call.op_type](x) if call.op_type in UNREDUCED else x
    axes = sorted(axis_in(axis, x.rank) for axis in given or range(x.rank))
    reduced = (
        REDUCTIONS[call.op_type](x, axes)
        if axes
        else REDUCTIONS[call.op_type](ops.reshape(x, [1]), [0])
    )
    return kept(reduced, axes if x.rank else [0], call.flag("keepdims", 1) and bool(x.rank))


UNREDUCED: Mapping[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": ops.abs,
    "ReduceL2": ops.abs,
    "ReduceLogSum": ops.log,
    "ReduceSumSquare": lambda x: x * x,
}
"""Results of a reduction over no axis, where that is not the operand."""


def kept(reduced: Tensor, axes: list[int], keeps: bool) -> Tensor:
    """A reduction's result, with its dimensions of size 1 or without."""
    if keeps:
        return reduced
    return ops.reshape(reduced, [dim for at, dim in enumerate(reduced.shape) if at not in axes])


@operator("ArgMax", "ArgMin")
def place(call: OperatorCall) -> Tensor:
    """The place of the largest or smallest element; the first of equal ones, or the last."""
    x = call.x()
    axis = call.axis(x.rank, 0)
    find = ops.argmax if call.op_type == "ArgMax" else ops.argmin
    if not call.flag("select_last_index"):
        return kept(find(x, axis), [axis], call.flag("keepdims", 1))
    size = x.shape[axis]
    require(size.is_static, "select_last_index along a named size")
    backwards = tuple(slice(None, None, -1 if at == axis else 1) for at in range(x.rank))
    last = int(size) - 1 - find(ops.slice_tensor(x, backwards), axis)
    return kept(last, [axis], call.flag("keepdims", 1))


@operator("CumSum")
def cumsum(call: OperatorCall) -> Tensor:
    """The sums up to each element along an axis."""
    x = call.x()
    (axis,) = call.ints(1)
    return ops.cumsum(x, axis_in(axis, x.rank), call.flag("exclusive"), call.flag("reverse"))


@operator("CumProd")
def cumprod(call: OperatorCall) -> Tensor:
    """The products up to each element along an axis, in as many steps as the size has digits."""
    x = call.x()
    (given,) = call.ints(1)
    axis = axis_in(given, x.rank)
    require(x.shape[axis].is_static, "products along a named size")
    size, backward = int(x.shape[axis]), call.flag("reverse")
    one = known(np.ones((), x.dtype.to_numpy()))
    if call.flag("exclusive"):
        x = _moved(x, axis, 1, one, backward=backward)
    step = 1
    while step < size:
        x = x * _moved(x, axis, step, one, backward=backward)
        step *= 2
    return x


def _moved(x: Tensor, axis: int, by: int, filler: Tensor, *, backward: bool) -> Tensor:
    """Elements moved along an axis to later places, or earlier ones; others come after them."""
    pads = [0] * (2 * x.rank)
    pads[2 * axis + backward] = by
    kept = slice(by, None) if backward else slice(0, int(x.shape[axis]))
    padded = ops.pad(x, pads, value=filler)
    return ops.slice_tensor(
        padded, tuple(kept if at == axis else slice(None) for at in range(x.rank))
    )
