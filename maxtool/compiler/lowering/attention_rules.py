"""The rule for attention without a cache."""

from __future__ import annotations

from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask
from maxtool.compiler.kernels.requests import DotAttention
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.graph import Node


def dot_attention_request(
    function: FunctionLowering, node: Node
) -> tuple[DotAttention, list[Expr]]:
    """Return the kernel of an attention in the types of its operands, and the mask, if any."""
    query, key, value, *masks = node.inputs
    mask, operands = None, []
    for tensor in masks:
        sizes = [*(1,) * (4 - tensor.rank), *function.sizes(tensor.shape)]
        operands.append(function.reshaped(function.get(tensor), sizes))
        shape = [*(1,) * (4 - tensor.rank), *tensor.shape]
        mask = Mask(tensor.dtype.value, tuple(dim == 1 for dim in shape))
    dim = int(query.shape[3])
    heads = HeadSizes(int(query.shape[1]), int(key.shape[1]), dim, int(value.shape[3]))
    scale = node.attributes["scale"]
    request = DotAttention(
        dtype=query.dtype.value,
        heads=heads,
        mask=mask,
        causal=node.attributes["causal"],
        scale=dim**-0.5 if scale is None else scale,
    )
    return request, operands


def _attention(function: FunctionLowering, node: Node) -> None:
    (result,) = node.outputs
    request, masks = dot_attention_request(function, node)
    operands = [*map(function.get, node.inputs[:3]), *masks]
    sizes = function.sizes(result.shape)
    function.set_whole(result, function.kernel(request, operands, sizes, result.dtype))


ATTENDING: dict[str, Rule] = {"scaled_dot_product_attention": _attention}
