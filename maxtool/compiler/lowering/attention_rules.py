"""The rules for attention, with and without a cache, and for what is written into a cache."""

from __future__ import annotations

from maxtool.compiler.fusion.attention_fusions import UNMOVED
from maxtool.compiler.kernels import requests
from maxtool.compiler.kernels.cpu.block_attention import fits_blocks
from maxtool.compiler.kernels.cpu.cpu_requests import (
    BlockAttention,
    CachedAttention,
    QuantizedAttention,
    QuantizeQ8,
    SlotAttention,
)
from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.permute_rules import permuted
from maxtool.dtype import DType
from maxtool.graph import Node

# The order of dimensions that makes transposed keys of others, and others of transposed ones.
TRANSPOSED = (0, 1, 3, 2)
# The kernel of each form of attention, and its operands without sinks.
FORMS = {"attention": (CachedAttention, 4), "slot_attention": (SlotAttention, 5)}


def attention_request(node: Node) -> requests.Attention:
    """Return the kernel of a node, as far as it is the same on every target."""
    query, key = node.inputs[:2]
    return requests.Attention(
        heads=int(query.shape[2]),
        kv_heads=int(key.shape[1]),
        head_dim=int(query.shape[3]),
        scale=node.attributes["scale"],
        window=node.attributes["window"],
        chunked=node.attributes["chunked"],
        softcap=node.attributes["softcap"],
        causal=node.attributes["causal"],
        dtype=key.dtype.value,
    )


def _cache_write(function: FunctionLowering, node: Node) -> None:
    cache, x = node.inputs[:2]
    request = requests.CacheWrite(
        kv_heads=int(x.shape[2]),
        head_dim=int(x.shape[3]),
        dtype=cache.dtype.value,
        transposed=node.attributes.get("transposed", False),
        slots=len(node.inputs) > 3,
        source=x.dtype.value,
    )
    operands = [function.to_overwrite(cache), *map(function.get, node.inputs[1:])]
    (written,) = function.kernel_updating(request, operands, 1, [])
    function.set_whole(node.outputs[0], written)


def _attention(function: FunctionLowering, node: Node) -> None:
    """The kernel knows transposed keys; others are made such, and cost a copy."""
    query, key, value, *numbers = node.inputs
    keys = function.get(key)
    if not node.attributes["transposed"]:
        keys = permuted(function, keys, function.sizes(key.shape), TRANSPOSED, key.dtype)
    form, count = FORMS[node.op]
    request = form(**vars(attention_request(node)), sinks=len(node.inputs) > count)
    operands = [function.get(query), keys, *map(function.get, (value, *numbers))]
    sizes = function.sizes(query.shape)
    attended = function.kernel(request, operands, sizes)
    function.set_whole(node.outputs[0], attended)


def _quantize(function: FunctionLowering, node: Node) -> None:
    (x,) = node.inputs
    packed = node.attributes["packed"]
    request = QuantizeQ8(heads=int(x.shape[2]), head_dim=int(x.shape[3]), packed=packed)
    types = [function.type(result.type) for result in node.outputs]
    results = function.kernel_of_types(request, [function.get(x)], types)
    for value, result in zip(node.outputs, results, strict=True):
        function.set_whole(value, result)


def _quantized_attention(function: FunctionLowering, node: Node) -> None:
    query, key = node.inputs[:2]
    kinds = [tensor.dtype for tensor in node.inputs[6:]]
    request = QuantizedAttention(
        heads=int(query.shape[2]),
        kv_heads=int(key.shape[1]),
        head_dim=int(query.shape[3]),
        scale=node.attributes["scale"],
        window=node.attributes["window"],
        chunked=node.attributes["chunked"],
        softcap=node.attributes["softcap"],
        slots=DType.int32 in kinds,
        sinks=DType.float32 in kinds,
        causal=node.attributes["causal"],
    )
    sizes = function.sizes(query.shape)
    attended = function.kernel(request, [*map(function.get, node.inputs)], sizes)
    function.set_whole(node.outputs[0], attended)


def dot_attention_request(
    function: FunctionLowering, node: Node, axis: int = 1
) -> tuple[requests.DotAttention, list[Expr]]:
    """Return the kernel of an attention in the types of its operands, and the mask, if any.

    Its heads are counted along ``axis``.
    """
    query, key, value, *masks = node.inputs
    mask, operands = None, []
    for tensor in masks:
        sizes = [*(1,) * (4 - tensor.rank), *function.sizes(tensor.shape)]
        operands.append(function.reshaped(function.get(tensor), sizes))
        shape = [*(1,) * (4 - tensor.rank), *tensor.shape]
        mask = Mask(tensor.dtype.value, tuple(dim == 1 for dim in shape))
    dim = int(query.shape[3])
    heads = HeadSizes(int(query.shape[axis]), int(key.shape[axis]), dim, int(value.shape[3]))
    scale = node.attributes["scale"]
    request = requests.DotAttention(
        dtype=query.dtype.value,
        heads=heads,
        mask=mask,
        causal=node.attributes["causal"],
        scale=dim**-0.5 if scale is None else scale,
        out=function.result_type(node.outputs[0]).value,
    )
    return request, operands


def _dot_attention(function: FunctionLowering, node: Node) -> None:
    (result,) = node.outputs
    by_token = node.op == UNMOVED
    plain, masks = dot_attention_request(function, node, axis=2 if by_token else 1)
    fits = fits_blocks(plain.dtype, plain.heads.key_dim, plain.heads.value_dim)
    request = BlockAttention(**vars(plain), by_token=by_token) if fits else plain
    operands = [*map(function.get, node.inputs[:3]), *masks]
    sizes = function.sizes(result.shape)
    function.set_whole(result, function.kernel(request, operands, sizes, result.dtype))


ATTENTION: dict[str, Rule] = {
    "attention": _attention,
    "cache_write_key": _cache_write,
    "cache_write_value": _cache_write,
    "quantize_q8_0": _quantize,
    "quantized_attention": _quantized_attention,
    "scaled_dot_product_attention": _dot_attention,
    "slot_attention": _attention,
    "slot_write_key": _cache_write,
    "slot_write_value": _cache_write,
    UNMOVED: _dot_attention,
}
