"""The rule for attention without a cache."""

from __future__ import annotations

from typing import Any

from maxtool.compiler.kernels.forms import Heads, Mask
from maxtool.compiler.lowering.function import Expr, FunctionLowering, Rule
from maxtool.graph import Node


def dot_attention_options(
    function: FunctionLowering, node: Node
) -> tuple[dict[str, Any], list[Expr]]:
    """What a kernel is built for, on any target; and the mask, if there is one."""
    query, key, value, *masks = node.inputs
    mask, operands = None, []
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
    return options, operands


def _attention(function: FunctionLowering, node: Node) -> None:
    (result,) = node.outputs
    options, masks = dot_attention_options(function, node)
    operands = [*(function.get(one) for one in node.inputs[:3]), *masks]
    sizes = function.sizes(result.shape)
    made = function.kernel("dot_attention", options, operands, sizes, result.dtype)
    function.set_whole(result, made)


ATTENDING: dict[str, Rule] = {"scaled_dot_product_attention": _attention}
