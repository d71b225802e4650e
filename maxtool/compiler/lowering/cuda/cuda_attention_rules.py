"""Rules for attention on a GPU: one kernel for many queries, two for the one of a decode step."""

from __future__ import annotations

from dataclasses import replace

from maxtool.compiler.fusion.cache_fusions import FUSED, STEP
from maxtool.compiler.kernels.cuda import gpu_requests as requests
from maxtool.compiler.kernels.cuda.attention_scores import Scores
from maxtool.compiler.kernels.cuda.split_kv_plan import SplitPlan, splits_for
from maxtool.compiler.lowering.attention_rules import (
    TRANSPOSED,
    attention_request,
    dot_attention_request,
)
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.permute_rules import permuted
from maxtool.graph import Dim, Node, Tensor


def _attention(function: FunctionLowering, node: Node) -> None:
    """Transposed keys, which are the CPU's, are put in order before, and cost a copy."""
    query, key, value, position, *sinks = node.inputs
    keys = function.get(key)
    if node.attributes["transposed"]:
        keys = permuted(function, keys, function.sizes(key.shape), TRANSPOSED, key.dtype)
    operands = [function.get(query), keys, function.get(value), function.get(position)]
    further = [*map(function.get, sinks)]
    result = node.outputs[0]
    if query.shape[1] == 1:
        split, shapes = _split(function, node, query, value)
        parts = function.kernel_several(split, operands, shapes)
        _join(function, result, split, [*parts, *further])
        return
    dtype, sizes = function.result_type(result), function.sizes(query.shape)
    request = requests.CachedAttention(
        **vars(attention_request(node)), out=dtype.value, sinks=bool(sinks)
    )
    attended = function.kernel(request, [*operands, *further], sizes, dtype)
    function.set_result(result, function.reshaped(attended, function.flat_sizes(result.shape)))


def _dot_attention(function: FunctionLowering, node: Node) -> None:
    """Queries, keys and values are rounded where tensor cores then take them; see ``rounding``."""
    result, tensors = node.outputs[0], node.inputs[:3]
    request, masks = dot_attention_request(function, node)
    rounded = [
        dtype for dtype in map(function.result_type, tensors) if dtype is not tensors[0].dtype
    ]
    if rounded:
        request = replace(request, dtype=rounded[0].value)
        operands = [
            function.reshaped(function.narrow(tensor, rounded[0]), function.sizes(tensor.shape))
            for tensor in tensors
        ]
    else:
        operands = [function.get(tensor) for tensor in tensors]
    dtype, sizes = function.result_type(result), function.sizes(result.shape)
    attended = function.kernel(request, [*operands, *masks], sizes, dtype)
    function.set_result(result, function.reshaped(attended, function.flat_sizes(result.shape)))


def _attention_step(function: FunctionLowering, node: Node) -> None:
    """The same with what is done before it: two rotations, and writes into the cache."""
    values, query, cos = node.inputs[1], node.inputs[2], node.inputs[5]
    split, shapes = _split(function, node, query, values)
    operands = [function.get(operand) for operand in node.inputs]
    request = requests.AttentionStep(**vars(split), dim=2 * int(cos.shape[1]))
    *caches, out, sums = function.kernel_updating(request, operands, 2, shapes)
    for value, expr in zip(node.outputs, caches, strict=False):
        function.set_whole(value, expr)
    _join(function, node.outputs[2], split, [out, sums])


def _rope_into_cache(function: FunctionLowering, node: Node) -> None:
    """Rotations and writes into the cache as one launch."""
    keys, _, query, key, _, cos = node.inputs[:6]
    request = requests.RopeIntoCache(
        heads=int(query.shape[2]),
        kv_heads=int(key.shape[2]),
        head_dim=int(query.shape[3]),
        dim=2 * int(cos.shape[1]),
        dtype=keys.dtype.value,
    )
    operands = [function.get(operand) for operand in node.inputs]
    results = function.kernel_updating(request, operands, 2, [function.sizes(query.shape)])
    for value, expr in zip(node.outputs, results, strict=True):
        function.set_whole(value, expr)


def _split(
    function: FunctionLowering, node: Node, query: Tensor, values: Tensor
) -> tuple[requests.AttentionSplit, list[list[Expr]]]:
    """Return the kernel of the parts of the keys of one token, and the shapes of its results."""
    heads, dim = int(query.shape[2]), int(query.shape[3])
    kv_heads, window = int(values.shape[1]), node.attributes["window"]
    dtype = values.dtype.value
    group = SplitPlan(heads // kv_heads, dim, dtype)
    splits = splits_for(group, kv_heads, _seen(values.shape[2], window))
    request = requests.AttentionSplit(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        scores=Scores(
            node.attributes["scale"],
            window,
            node.attributes["softcap"],
            chunked=node.attributes["chunked"],
        ),
        dtype=dtype,
        splits=splits,
    )
    rows = [function.size(query.shape[0]), heads, splits]
    return request, [[*rows, dim], [*rows, 2]]


def _join(
    function: FunctionLowering,
    result: Tensor,
    split: requests.AttentionSplit,
    parts: list[Expr],
) -> None:
    """Combine the results of the parts of the keys, and their sums, with sinks if there are."""
    dtype, sizes = function.result_type(result), function.sizes(result.shape)
    request = requests.AttentionJoin(
        heads=split.heads,
        head_dim=split.head_dim,
        splits=split.splits,
        out=dtype.value,
        sinks=len(parts) > 2,
    )
    attended = function.kernel(request, parts, sizes, dtype)
    function.set_result(result, function.reshaped(attended, function.flat_sizes(result.shape)))


def _seen(context: Dim, window: int | None) -> int | None:
    """The most keys that a query can see; None if that is not known now."""
    counts = [int(context)] if context.is_static else []
    return min([*counts, *([window] if window else [])], default=None)


ATTENTION: dict[str, Rule] = {
    "attention": _attention,
    FUSED: _rope_into_cache,
    STEP: _attention_step,
    "scaled_dot_product_attention": _dot_attention,
}
