"""The rules for attention over a cache and for what is written into one."""

from __future__ import annotations

from maxtool.compiler.kernels.requests import Attention, CacheWriteKey, CacheWriteValue
from maxtool.compiler.lowering.cast_rules import converted
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.permute_rules import permuted
from maxtool.dtype import DType
from maxtool.graph import BufferType, Node, Tensor

# The order of dimensions that makes transposed keys of others, and others of transposed ones.
TRANSPOSED = (0, 1, 3, 2)


def attention_request(node: Node) -> Attention:
    """Return the kernel of a node, as far as it is the same on every target."""
    query, key = node.inputs[:2]
    return Attention(
        heads=int(query.shape[2]),
        kv_heads=int(key.shape[1]),
        head_dim=int(query.shape[3]),
        scale=node.attributes["scale"],
        window=node.attributes["window"],
        softcap=node.attributes["softcap"],
    )


def cache_write(function: FunctionLowering, node: Node) -> None:
    """Lower a write into a cache, on any target."""
    cache, x = node.inputs[:2]
    write = CacheWriteKey if node.attributes.get("transposed") else CacheWriteValue
    heads, dim = int(x.shape[2]), int(x.shape[3])
    request = write(kv_heads=heads, head_dim=dim, dtype=cache.dtype.value)
    owned = isinstance(cache.type, BufferType)
    written = function.get(cache) if owned else function.copied(cache)
    operands = [written, *map(function.get, node.inputs[1:])]
    function.set_whole(node.outputs[0], function.kernel_inplace(request, operands))


def _attention(function: FunctionLowering, node: Node) -> None:
    """The kernel knows float32 and transposed keys; others are made such, and cost a copy."""
    query, key, value, position = node.inputs
    keys, values = _widened(function, key), _widened(function, value)
    if not node.attributes["transposed"]:
        keys = permuted(function, keys, function.sizes(key.shape), TRANSPOSED, DType.float32)
    operands = [function.get(query), keys, values, function.get(position)]
    sizes = function.sizes(query.shape)
    attended = function.kernel(attention_request(node), operands, sizes)
    function.set_whole(node.outputs[0], attended)


def _widened(function: FunctionLowering, x: Tensor) -> Expr:
    return converted(function, function.get(x), x.dtype, DType.float32)


CACHING: dict[str, Rule] = {
    "attention": _attention,
    "cache_write_key": cache_write,
    "cache_write_value": cache_write,
}
