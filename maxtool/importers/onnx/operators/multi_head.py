"""Attention and MultiHeadAttention of com.microsoft: as many heads of keys as of queries."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.operators.scores import (
    Scoring,
    added,
    apart,
    filtered,
    joined,
    numbers_of,
    together,
)
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import Value

SCORES = "num_heads unidirectional mask_filter_value scale"
SHARED = "a cache whose buffers inputs and outputs share is not supported; grow it by Concat"


def _padding(call: OperatorCall, index: int, query: Tensor, key: Tensor) -> Tensor | None:
    """A mask among the inputs as numbers to add to scores; None if there is none."""
    if not call.has(index):
        return None
    mask = call.x(index)
    visible = _visible(mask, query, key)
    return filtered(visible, call.real("mask_filter_value", -10000.0))


def _visible(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The keys that a mask shows, bool, as it broadcasts with the scores."""
    batch = query.shape[0]
    if mask.rank == 1:
        return _between(ops.cast(mask, DType.int64), batch == mask.shape[0], key)
    if mask.rank == 2:
        require(mask.shape[1] == key.shape[2], f"a mask {mask.type} for {key.shape[2]} keys")
        return ops.reshape(ops.greater(mask, 0), [mask.shape[0], 1, 1, mask.shape[1]])
    if mask.rank == 3:
        return ops.unsqueeze(ops.greater(mask, 0), 1)
    past = key.shape[2] - query.shape[2]
    rows = ops.gather(mask, numbers_of(query, 2) + ops.shape_to_tensor([past]), 2)
    return ops.greater(ops.gather(rows, numbers_of(key, 2), 3), 0)


def _between(ends: Tensor, only_ends: bool, key: Tensor) -> Tensor:
    """Keys before an end of each row, and from a start on if there are starts too."""
    batch = key.shape[0]
    twice = batch.is_static and ends.shape[0] == 2 * int(batch)
    require(only_ends or twice, f"a mask {ends.type} for {batch} rows is not supported")
    places = ops.reshape(numbers_of(key, 2), [1, 1, 1, -1])
    if only_ends:
        return ops.less(places, ops.reshape(ends, [-1, 1, 1, 1]))
    last, first = (ops.reshape(one, [-1, 1, 1, 1]) for one in ops.chunk(ends, 2, 0))
    return ops.logical_and(ops.less(places, last), ops.greater_equal(places, first))


def _scoring(call: OperatorCall) -> Scoring:
    scale = call.real("scale", 0.0)
    return Scoring(scale or None, causal=call.flag("unidirectional"))


@operator("Attention", domain=MICROSOFT)
def attention(call: OperatorCall) -> list[Value]:
    """Self-attention with its projections; and the keys and values with those before."""
    taken = "qkv_hidden_sizes do_rotary rotary_embedding_dim past_present_share_buffer"
    call.only(f"{SCORES} {taken}", 7)
    require(not call.flag("do_rotary"), "do_rotary is not supported")
    shares = call.flag("past_present_share_buffer") or call.has(6)
    require(not shares, SHARED)
    x, weights, bias = call.x(0), call.x(1), call.maybe(2)
    heads, total = call.number("num_heads"), int(weights.shape[1])
    sizes = call.numbers("qkv_hidden_sizes", [total // 3] * 3)
    require(len(sizes) == 3 and sum(sizes) == total, f"parts {sizes} of {total} columns")
    projected = ops.matmul(x, weights)
    projected = projected if bias is None else projected + bias
    query, key, value = (apart(part, heads) for part in ops.split(projected, sizes, 2))
    present = None
    if call.has(4):
        past = [ops.squeeze(one, 0) for one in ops.split(call.x(4), [1, 1], 0)]
        key, value = joined(past[0], key), joined(past[1], value)
    if call.wants(1):
        present = ops.stack([key, value], 0)
    mask = added(_padding(call, 3, query, key), call.maybe(5))
    return [together(_scoring(call).attended(query, key, value, mask)), present]


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(call: OperatorCall) -> list[Value]:
    """Attention of projected queries, keys and values; and the last two with those before."""
    call.only(SCORES, 10)
    require(not (call.has(8) or call.has(9)), SHARED)
    require(not call.wants(3), "the scores as a result are not supported")
    query, key, value = _operands(call, call.number("num_heads"))
    past = [call.maybe(6), call.maybe(7)]
    key, value = joined(past[0], key), joined(past[1], value)
    mask = added(_padding(call, 4, query, key), call.maybe(5))
    return [together(_scoring(call).attended(query, key, value, mask)), key, value]


def _operands(call: OperatorCall, heads: int) -> list[Tensor]:
    """Queries, keys and values with their biases, ``[batch, heads, length, dim]``."""
    parts = _unpacked(call)
    biases: list[Tensor | None] = [None] * 3
    if (bias := call.maybe(3)) is not None:
        biases = [*_biases(parts, bias)]
    return [
        part if part.rank == 4 else apart(part if one is None else part + one, heads)
        for part, one in zip(parts, biases, strict=True)
    ]


def _biases(parts: Sequence[Tensor], bias: Tensor) -> list[Tensor]:
    widths = [
        int(part.shape[2] if part.rank == 3 else part.shape[1] * part.shape[3]) for part in parts
    ]
    require(bias.shape == [sum(widths)], f"a bias {bias.type} for {widths} elements")
    return list(ops.split(bias, widths, 0))


def _unpacked(call: OperatorCall) -> list[Tensor]:
    """The three operands, which may be parts of one: ``[batch, length, heads, parts, dim]``."""
    query = call.x(0)
    if query.rank == 5:
        return _parts(query, 3)
    if not call.has(1):
        raise RefusedNode(f"there are no keys, and queries are {query.type}")
    key = call.x(1)
    return [query, *_parts(key, 2)] if key.rank == 5 else [query, key, call.x(2)]


def _parts(packed: Tensor, count: int) -> list[Tensor]:
    batch, length, heads, number, dim = packed.shape
    require(number == count and dim.is_static and heads.is_static, f"{packed.type} as {count}")
    width = int(heads) * int(dim)
    pieces = ops.split(packed, [1] * count, 3)
    return [ops.reshape(piece, [batch, length, width]) for piece in pieces]
