"""Dimensions in another order, for the rule of that name and for others that need it."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.compiler.kernels.requests import Permute
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.storage_types import stored
from maxtool.dtype import DType
from maxtool.graph import Node


def permuted(
    function: FunctionLowering,
    value: Expr,
    sizes: Sequence[Expr],
    dims: Sequence[int],
    dtype: DType,
) -> Expr:
    """``value`` of those sizes with its dimensions in the order ``dims``; itself if they are."""
    if list(dims) == sorted(dims):
        return value
    request = Permute(dtype=stored(dtype), dims=tuple(dims))
    return function.kernel(request, [value], [sizes[dim] for dim in dims], dtype)


def _permute(function: FunctionLowering, node: Node) -> None:
    x, result = node.inputs[0], node.outputs[0]
    dims, sizes = node.attributes["dims"], function.sizes(x.shape)
    dtype = function.result_type(x)
    if dtype is not x.dtype:
        whole = function.reshaped(function.narrow(x, dtype), sizes)
        moved = permuted(function, whole, sizes, dims, dtype)
        function.set_result(result, function.reshaped(moved, function.flat_sizes(result.shape)))
        return
    same = list(dims) == sorted(dims)
    value = function.to_keep(x) if same else function.get(x)
    function.set_whole(result, permuted(function, value, sizes, dims, x.dtype))


PERMUTING: dict[str, Rule] = {"permute": _permute}
