"""GroupQueryAttention of com.microsoft: heads of keys that serve several heads of queries.

A row's cache may be longer than what it holds: ``seqlens_k`` says how many keys each row has in
all, less 1, and new ones are put right behind the old.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.graph.ops.operation_table import as_number
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.operators.rotating import Rotation
from maxtool.importers.onnx.operators.scores import Scoring, apart, numbers_of, together
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Value, known

TAKEN = (
    "num_heads kv_num_heads scale do_rotary rotary_interleaved local_window_size softcap causal"
    " smooth_softmax qk_output k_quant_type v_quant_type kv_cache_bit_width sliding_window_cache"
)
QUANTIZED = ("k_quant_type", "v_quant_type", "kv_cache_bit_width")


@dataclass(frozen=True, slots=True)
class Placing:
    """Places of the tokens of a call.

    Attributes:
        total: The keys of each row in all, int64 ``[batch, 1]``.
        past: Those of each row before this call, likewise.
        steps: The tokens of this call, int64 ``[1, length]``.
    """

    total: Tensor
    past: Tensor
    steps: Tensor

    @classmethod
    def of(cls, lengths: Tensor, query: Tensor, *, is_prompt: bool) -> Placing:
        """The places of queries ``[batch, heads, length, dim]``, from ``seqlens_k``."""
        total = ops.reshape(ops.cast(lengths, DType.int64), [-1, 1]) + 1
        steps = ops.unsqueeze(numbers_of(query, 2), 0)
        before = total - as_number(query.shape[2], DType.int64)
        past = total * 0 if is_prompt else ops.maximum(before, 0)
        return cls(total, past, steps)

    @property
    def positions(self) -> Tensor:
        """The position of each token, ``[batch, length]``."""
        return self.past + self.steps

    def grown(self, past: Tensor | None, new: Tensor) -> Tensor:
        """A cache with new keys or values right behind what each row holds."""
        if past is None or past.shape[2] == 0:
            return new
        whole = ops.concat([past, new], 2)
        places = ops.unsqueeze(numbers_of(whole, 2), 0)
        unused = as_number(past.shape[2], DType.int64) - self.past
        source = ops.where(ops.less(places, self.past), places, places + unused)
        last = as_number(whole.shape[2], DType.int64) - 1
        rows = ops.unsqueeze(ops.minimum(source, last), -1)
        kept = ops.gather_nd(ops.permute(whole, (0, 2, 1, 3)), rows, batch_dims=1)
        filled = ops.unsqueeze(ops.unsqueeze(ops.less(places, self.total), -1), -1)
        zero = known(np.zeros((), whole.dtype.to_numpy()))
        return ops.permute(ops.where(filled, kept, zero), (0, 2, 1, 3))

    def visible(self, keys: Tensor, window: int) -> Tensor:
        """The keys that each query sees, bool ``[batch, 1, queries, keys]``."""
        places = ops.reshape(numbers_of(keys, 2), [1, 1, -1])
        own = ops.unsqueeze(self.positions, -1)
        seen = ops.logical_and(
            ops.less_equal(places, own), ops.less(places, ops.unsqueeze(self.total, -1))
        )
        if window > 0:
            seen = ops.logical_and(seen, ops.greater(places, own - window))
        return ops.unsqueeze(seen, 1)


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(call: OperatorCall) -> list[Value]:
    """Causal attention of rotated queries and keys; and keys and values with those before."""
    _require_supported(call)
    query, key, value = _operands(call)
    cached = [call.maybe(index) for index in (3, 4)]
    is_prompt = cached[0] is None or cached[0].shape[2] == 0
    placing = Placing.of(call.x(5), query, is_prompt=is_prompt)
    if call.flag("do_rotary"):
        positions = ops.cast(call.x(9), DType.int64) if call.has(9) else placing.positions
        turn = Rotation.at(positions, (call.x(7), call.x(8)), call.flag("rotary_interleaved"))
        query, key = turn(query), turn(key)
    key, value = placing.grown(cached[0], key), placing.grown(cached[1], value)
    mask = placing.visible(key, call.number("local_window_size", -1))
    if (bias := call.maybe(10)) is not None:
        hidden = known(np.float32(-np.inf))
        mask = ops.where(mask, ops.cast(bias, DType.float32), hidden)
    return [together(_scoring(call).attended(query, key, value, mask)), key, value]


def _require_supported(call: OperatorCall) -> None:
    call.only(TAKEN, 12)
    for name in QUANTIZED:
        plain = call.attributes.get(name, 0) in ("NONE", 0)
        require(plain, f"caches that are quantized ({name}) are not supported")
    require(not call.wants(3), "the scores as a result are not supported")
    require(call.flag("causal", 1), "attention that is not causal is not supported")
    require(not call.flag("sliding_window_cache"), "a cache of a window only is not supported")


def _operands(call: OperatorCall) -> list[Tensor]:
    """Queries, keys and values, which may be side by side in one, with their heads apart."""
    heads, kv_heads = call.number("num_heads"), call.number("kv_num_heads")
    query = call.x(0)
    if call.has(1):
        return [apart(query, heads), apart(call.x(1), kv_heads), apart(call.x(2), kv_heads)]
    whole = heads + 2 * kv_heads
    known_width = query.rank == 3 and query.shape[2].is_static and int(query.shape[2]) % whole == 0
    require(known_width, f"{query.type} in {whole} heads")
    dim = int(query.shape[2]) // whole
    parts = ops.split(query, [heads * dim, kv_heads * dim, kv_heads * dim], 2)
    counts = (heads, kv_heads, kv_heads)
    return [apart(part, count) for part, count in zip(parts, counts, strict=True)]


def _scoring(call: OperatorCall) -> Scoring:
    sink = call.maybe(11)
    if sink is None and call.number("smooth_softmax", -1) > 0:
        sink = known(np.zeros(1, np.float32))
    return Scoring(call.real("scale", 0.0) or None, softcap=call.real("softcap", 0.0), sink=sink)
