"""Rules for attention on a GPU: one kernel for many queries, two for the one of a decode step."""

from __future__ import annotations

from typing import Any

from maxtool.compiler.kernels.cuda.attention_plan import Split, splits_for
from maxtool.compiler.kernels.cuda.scores import Scores
from maxtool.compiler.lowering.attending import dot_attention_options
from maxtool.compiler.lowering.caching import TRANSPOSED, attention_options
from maxtool.compiler.lowering.cuda.caching import STEP
from maxtool.compiler.lowering.function import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.permuting import permuted
from maxtool.graph import Dim, Node, Tensor


def _attention(function: FunctionLowering, node: Node) -> None:
    """Transposed keys, which are the CPU's, are put in order before, and cost a copy."""
    query, key, value, position = node.inputs
    keys = function.get(key)
    if node.attributes["transposed"]:
        keys = permuted(function, keys, function.sizes(key.shape), TRANSPOSED, key.dtype)
    operands = [function.get(query), keys, function.get(value), function.get(position)]
    options = {**attention_options(node), "dtype": value.dtype.value}
    result = node.outputs[0]
    if query.shape[1] == 1:
        given, shapes = _shares(function, node, query, value)
        parts = function.kernel_several("attention_split", given, operands, shapes)
        _join(function, result, given, parts)
        return
    dtype, sizes = function.result_type(result), function.sizes(query.shape)
    made = function.kernel("attention", options | {"out": dtype.value}, operands, sizes, dtype)
    function.set_result(result, function.reshaped(made, function.flat_sizes(result.shape)))


def _dot_attention(function: FunctionLowering, node: Node) -> None:
    """Queries, keys and values are rounded where tensor cores then take them; see ``rounding``."""
    result, operands = node.outputs[0], node.inputs[:3]
    options, masks = dot_attention_options(function, node)
    rounded = [one for one in map(function.result_type, operands) if one is not operands[0].dtype]
    if rounded:
        options["dtype"] = rounded[0].value
        given = [
            function.reshaped(function.narrow(one, rounded[0]), function.sizes(one.shape))
            for one in operands
        ]
    else:
        given = [function.get(one) for one in operands]
    dtype, sizes = function.result_type(result), function.sizes(result.shape)
    options["out"] = dtype.value
    made = function.kernel("dot_attention", options, [*given, *masks], sizes, dtype)
    function.set_result(result, function.reshaped(made, function.flat_sizes(result.shape)))


def _attention_step(function: FunctionLowering, node: Node) -> None:
    """The same with what is done before it: two rotations, and writes into the cache."""
    values, query, cos = node.inputs[1], node.inputs[2], node.inputs[5]
    given, shapes = _shares(function, node, query, values)
    operands = [function.get(operand) for operand in node.inputs]
    options = given | {"dim": 2 * int(cos.shape[1])}
    *caches, out, sums = function.kernel_updating(STEP, options, operands, 2, shapes)
    for value, expr in zip(node.outputs, caches, strict=False):
        function.set_whole(value, expr)
    _join(function, node.outputs[2], given, [out, sums])


def _shares(
    function: FunctionLowering, node: Node, query: Tensor, values: Tensor
) -> tuple[dict[str, Any], list[list[Expr]]]:
    """What the shares of the keys of one token are built for, and the shapes of what they leave."""
    heads, dim = int(query.shape[2]), int(query.shape[3])
    kv_heads, window = int(values.shape[1]), node.attributes["window"]
    dtype = values.dtype.value
    split = Split(heads // kv_heads, dim, dtype)
    splits = splits_for(split, kv_heads, _seen(values.shape[2], window))
    options = {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": dim,
        "scores": Scores(node.attributes["scale"], window, node.attributes["softcap"]),
        "dtype": dtype,
        "splits": splits,
    }
    rows = [function.size(query.shape[0]), heads, splits]
    return options, [[*rows, dim], [*rows, 2]]


def _join(
    function: FunctionLowering, result: Tensor, given: dict[str, Any], parts: list[Expr]
) -> None:
    """The join of the shares."""
    dtype, sizes = function.result_type(result), function.sizes(result.shape)
    options = {name: given[name] for name in ("heads", "head_dim", "splits")}
    options["out"] = dtype.value
    made = function.kernel("attention_join", options, parts, sizes, dtype)
    function.set_result(result, function.reshaped(made, function.flat_sizes(result.shape)))


def _seen(context: Dim, window: int | None) -> int | None:
    """The most keys that a query can see; None if that is not known now."""
    counts = [int(context)] if context.is_static else []
    return min([*counts, *([window] if window else [])], default=None)


ATTENTION: dict[str, Rule] = {
    "attention": _attention,
    STEP: _attention_step,
    "scaled_dot_product_attention": _dot_attention,
}
