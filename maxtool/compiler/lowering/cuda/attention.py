"""Rules for attention on a GPU: one kernel for many queries, two for the one of a decode step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from maxtool.compiler.kernels.cuda.attention_split import Split, splits_for
from maxtool.compiler.kernels.cuda.scores import Scores
from maxtool.compiler.lowering.caching import TRANSPOSED, attention_options
from maxtool.compiler.lowering.function import FunctionLowering
from maxtool.compiler.lowering.permuting import permuted
from maxtool.graph import Dim, Node

Expr: TypeAlias = Any  # tvm ships no types
Rule: TypeAlias = Callable[[FunctionLowering, Node], None]


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
        made = _one_token(function, node, options, operands)
    else:
        dtype, sizes = function.result_type(result), function.sizes(query.shape)
        made = function.kernel("attention", options | {"out": dtype.value}, operands, sizes, dtype)
    function.set_result(result, function.reshaped(made, function.flat_sizes(result.shape)))


def _one_token(
    function: FunctionLowering, node: Node, options: dict[str, Any], operands: list[Expr]
) -> Expr:
    """The shares of the keys, then their join."""
    query, value = node.inputs[0], node.inputs[2]
    heads, kv_heads, dim = (options[name] for name in ("heads", "kv_heads", "head_dim"))
    split = Split(heads // kv_heads, dim, options["dtype"])
    splits = splits_for(split, kv_heads, _seen(value.shape[2], options["window"]))
    scores = Scores(options["scale"], options["window"], options["softcap"])
    shared = {"heads": heads, "head_dim": dim, "splits": splits}
    given = {**shared, "kv_heads": kv_heads, "scores": scores, "dtype": options["dtype"]}
    rows = [function.size(query.shape[0]), heads, splits]
    parts = function.kernel_several("attention_split", given, operands, [[*rows, dim], [*rows, 2]])
    dtype = function.result_type(node.outputs[0])
    joined, sizes = shared | {"out": dtype.value}, function.sizes(query.shape)
    return function.kernel("attention_join", joined, parts, sizes, dtype)


def _seen(context: Dim, window: int | None) -> int | None:
    """The most keys that a query can see; None if that is not known now."""
    counts = [int(context)] if context.is_static else []
    return min([*counts, *([window] if window else [])], default=None)


ATTENTION: dict[str, Rule] = {"attention": _attention}
