"""Rules for what works along some dimensions: these are brought last, and joined to rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

from tvm import tirx

from maxtool.compiler.kernels.cpu.reduction import cumsum_rows, index_rows, reduce_rows
from maxtool.compiler.lowering import expressions as te
from maxtool.compiler.lowering.function import FunctionLowering
from maxtool.graph import Node, Tensor
from maxtool.graph.ops.reduction import INDICES, REDUCTIONS

Expr: TypeAlias = Any  # tvm ships no types
Rule: TypeAlias = Callable[[FunctionLowering, Node], None]


def rows(function: FunctionLowering, value: Tensor, axes: Sequence[int]) -> Expr:
    """``value`` as ``[everything else, elements along axes]``."""
    order = _axes_last(value.rank, axes)
    whole = function.get(value)
    if order != tuple(range(value.rank)):
        whole = function.compute(te.permute(order), whole, name="permute")
    return function.reshaped(whole, row_sizes(function, value, axes))


def row_sizes(function: FunctionLowering, value: Tensor, axes: Sequence[int]) -> list[Expr]:
    """How many rows there are, and how many elements each has."""
    sizes = function.sizes(value.shape)
    one = tirx.IntImm("int64", 1)
    along = prod((sizes[axis] for axis in axes), start=one)
    return [prod((size for axis, size in enumerate(sizes) if axis not in axes), start=one), along]


def set_rows(function: FunctionLowering, result: Tensor, axes: Sequence[int], value: Expr) -> None:
    """Say what ``result`` is by its :func:`rows`."""
    order = _axes_last(result.rank, axes)
    sizes = function.sizes(result.shape)
    whole = function.reshaped(value, [sizes[axis] for axis in order])
    if order != tuple(range(result.rank)):
        back = tuple(order.index(axis) for axis in range(result.rank))
        whole = function.compute(te.permute(back), whole, name="permute")
    function.set_whole(result, whole)


def _axes_last(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    return (*(axis for axis in range(rank) if axis not in axes), *axes)


def _reduction(function: FunctionLowering, node: Node) -> None:
    (x,), (result,), axes = node.inputs, node.outputs, node.attributes["axes"]
    operand = rows(function, x, axes)
    count = row_sizes(function, x, axes)[:1]
    if node.op in INDICES:
        named = (node.op, x.dtype.value)
        value = function.kernel(index_rows, named, [operand], count, result.dtype)
    else:
        typed = (node.op, x.dtype.value, function.module.target.tile.lanes)
        value = function.kernel(reduce_rows, typed, [operand], count, result.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _cumsum(function: FunctionLowering, node: Node) -> None:
    (x,), (result,), axes = node.inputs, node.outputs, node.attributes["axes"]
    arguments = (x.dtype.value, node.attributes["exclusive"], node.attributes["reverse"])
    sizes = row_sizes(function, x, axes)
    value = function.kernel(cumsum_rows, arguments, [rows(function, x, axes)], sizes, x.dtype)
    set_rows(function, result, axes, value)


ROWWISE: dict[str, Rule] = {
    **dict.fromkeys((*REDUCTIONS, *INDICES), _reduction),
    "cumsum": _cumsum,
}
