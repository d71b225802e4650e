"""The rule for rotations and writes into a cache as one launch."""

from __future__ import annotations

from maxtool.compiler.fusion.cache_fusions import FUSED
from maxtool.compiler.kernels.cuda.gpu_requests import RopeIntoCache
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.graph import Node


def _rope_into_cache(function: FunctionLowering, node: Node) -> None:
    keys, _, query, key, _, cos = node.inputs[:6]
    request = RopeIntoCache(
        heads=int(query.shape[2]),
        kv_heads=int(key.shape[2]),
        head_dim=int(query.shape[3]),
        dim=2 * int(cos.shape[1]),
        dtype=keys.dtype.value,
    )
    operands = [function.get(operand) for operand in node.inputs]
    sizes = function.sizes(query.shape)
    results = function.kernel_updating(request, operands, 2, [sizes])
    for value, expr in zip(node.outputs, results, strict=True):
        function.set_whole(value, expr)


CACHING: dict[str, Rule] = {FUSED: _rope_into_cache}
