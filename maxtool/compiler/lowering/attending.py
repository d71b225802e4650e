"""The rule for attention without a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from maxtool.compiler.kernels.forms import Heads, Mask
from maxtool.compiler.lowering.function import FunctionLowering
from maxtool.graph import Node

Rule: TypeAlias = Callable[[FunctionLowering, Node], None]


def _attention(function: FunctionLowering, node: Node) -> None:
    query, key, value, *masks = node.inputs
    (result,) = node.outputs
    operands = [function.get(one) for one in (query, key, value)]
    mask = None
    for one in masks:
        sizes = [*(1,) * (4 - one.rank), *function.sizes(one.shape)]
        operands.append(function.reshaped(function.get(one), sizes))
        shape = [*(1,) * (4 - one.rank), *one.shape]
        mask = Mask(one.dtype.value, tuple(dim == 1 for dim in shape))
    dim = int(query.shape[3])
    heads = Heads(int(query.shape[1]), int(key.shape[1]), dim, int(value.shape[3]))
    given = node.attributes["scale"]
    scale = dim**-0.5 if given is None else given
    options = {
        "dtype": query.dtype.value,
        "heads": heads,
        "mask": mask,
        "causal": node.attributes["causal"],
        "scale": scale,
    }
    sizes = function.sizes(result.shape)
    made = function.kernel("dot_attention", options, operands, sizes, result.dtype)
    function.set_whole(result, made)


ATTENDING: dict[str, Rule] = {"scaled_dot_product_attention": _attention}
