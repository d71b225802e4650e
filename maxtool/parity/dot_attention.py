"""Attention by scaled dot products, with and without a cache of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool.graph.ops.quantized_cache import BLOCK
from maxtool.parity.activation_rounding import rounded
from maxtool.parity.array_types import Array, Definitions, Floats, Integers
from maxtool.quantization.legacy import BELOW_HALF


def _attended(scores: Floats, value: Floats, sinks: Floats | None = None) -> Floats:
    """Mix values ``[..., keys, dim]`` by the softmax of scores; zeros where no key is seen.

    The score of one more key of each head, whose value is zero, is among ``sinks [heads]``.
    """
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    total = powers.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - np.where(np.isfinite(highest), highest, 0))
    return powers / np.where(total == 0, 1, total) @ value


def _per_head(x: Floats, heads: int) -> Floats:
    """Keys or values ``[batch, kv_heads, ...]`` for each head of queries."""
    return np.repeat(x, heads // x.shape[1], axis=1)


def _first_seen(queries: Integers, window: int, *, chunked: bool) -> Integers:
    """The first of the keys that queries at some positions see."""
    return queries - queries % window if chunked else queries - window + 1


def _cached_attention(
    query: Floats,
    key: Floats,
    value: Floats,
    position: Integers,
    sinks: Floats | None = None,
    *,
    scale: float,
    window: int | None,
    chunked: bool,
    softcap: float | None,
    causal: bool,
    transposed: bool,
) -> Floats:
    """Attend from queries ``[batch, seq, heads, dim]`` to the keys up to each query's own.

    To those of all queries where it is not causal.
    """
    first, (_, length, heads, _) = int(position[0]), query.shape
    seen = slice(0, first + length)
    keys = key[..., seen].swapaxes(-1, -2) if transposed else key[:, :, seen]
    queries = first + np.arange(length)[:, None]
    places = np.arange(keys.shape[2])
    hidden = (places > queries) & causal
    if window is not None:
        hidden |= places < _first_seen(queries, window, chunked=chunked)
    scores = query.swapaxes(1, 2) @ _per_head(keys, heads).swapaxes(-1, -2) * scale
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    values = _per_head(value[:, :, seen], heads)
    mixed = _attended(np.where(hidden, -np.inf, scores), values, sinks)
    return mixed.swapaxes(1, 2)


def _attention(
    query: Floats,
    key: Floats,
    value: Floats,
    mask: Floats | None = None,
    *,
    causal: bool,
    scale: float | None,
) -> Floats:
    """Attend from queries ``[batch, heads, queries, dim]`` to all keys that the mask shows."""
    heads, length = query.shape[1:3]
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ _per_head(key, heads).swapaxes(-1, -2) * factor
    if causal:
        visible = np.tri(length, key.shape[2], key.shape[2] - length, dtype=bool)
        scores = np.where(visible, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return _attended(scores, _per_head(value, heads))


def _write(cache: Floats, x: Floats, position: Integers) -> Floats:
    """Write ``x [batch, seq, heads, dim]`` into ``cache [batch, heads, context, dim]`` in place."""
    first, context = int(position[0]), cache.shape[2]
    inside = slice(max(-first, 0), max(context - first, 0))
    rows = x.swapaxes(1, 2)[:, :, inside]
    start = max(first, 0)
    cache[:, :, start : start + rows.shape[2]] = rows
    return cache


def _write_key(cache: Floats, x: Floats, position: Integers, transposed: bool) -> Floats:
    _write(cache.swapaxes(2, 3) if transposed else cache, x, position)
    return cache


def _slot_attention(
    query: Floats,
    key: Floats,
    value: Floats,
    position: Integers,
    slot: Integers,
    *sinks: Floats,
    **options: Any,  # noqa: ANN401 - those of attention
) -> Floats:
    """Attend from each row to the keys in its own slot."""
    rows = [
        _cached_attention(
            query[i : i + 1], key[at : at + 1], value[at : at + 1], first, *sinks, **options
        )
        for i, (first, at) in enumerate(zip(position[:, None], slot, strict=True))
    ]
    return np.concatenate(rows)


def _write_slots(cache: Floats, x: Floats, position: Integers, slot: Integers) -> Floats:
    """Write each row into its own slot."""
    for row, first, at in zip(x[:, None], position[:, None], slot, strict=True):
        _write(cache[at : at + 1], row, first)
    return cache


def _write_slot_keys(
    cache: Floats, x: Floats, position: Integers, slot: Integers, transposed: bool
) -> Floats:
    _write_slots(cache.swapaxes(2, 3) if transposed else cache, x, position, slot)
    return cache


def _quantize(x: Floats, packed: bool) -> tuple[Array, Array]:
    """Quants and scales of blocks: as the codec of files has it, and what that refuses in NaN."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, BLOCK)
    largest = np.abs(blocks).max(-1)
    finite = np.isfinite(largest)
    scales = np.where(finite, largest, np.float32(np.nan)) / np.float32(127)
    with np.errstate(all="ignore"):  # scales of 0, and those that float16 cannot hold
        inverse = np.where(scales > 0, np.float32(1) / scales, np.float32(0))
        quants = np.where(finite[..., None], blocks, 0) * inverse[..., None]
        quants = (quants + np.copysign(BELOW_HALF, quants)).astype(np.int8).reshape(x.shape)
        return quants.view("<i4") if packed else quants, scales.astype(np.float16)


def _scaled(quants: Integers, scales: Floats, axis: int) -> Floats:
    """Return what blocks along an axis stand for."""
    each = np.repeat(scales, quants.shape[axis] // scales.shape[axis], axis)
    return each * quants


def _quantized_attention(
    query: Floats,
    key: Integers,
    key_scale: Floats,
    value: Integers,
    value_scale: Floats,
    position: Integers,
    *further: Array,
    **options: Any,  # noqa: ANN401 - those of attention
) -> Floats:
    """Attend to keys and values in blocks, of the own slot if there are slots; as kernels do it."""
    turned = np.ascontiguousarray(key.astype("<i4").swapaxes(2, 3)).view("i1")
    keys, values = _scaled(turned.swapaxes(2, 3), key_scale, 2), _scaled(value, value_scale, 3)
    options |= {"transposed": True}
    queries = rounded(query, BLOCK)
    if not any(each.dtype.kind == "i" for each in further):
        return _cached_attention(queries, keys, values, position, *further, **options)
    return _slot_attention(queries, keys, values, position, *further, **options)


COMPUTED: Definitions = {
    "attention": _cached_attention,
    "quantize_q8_0": _quantize,
    "quantized_attention": _quantized_attention,
    "scaled_dot_product_attention": _attention,
    "slot_attention": _slot_attention,
}

MOVED: Definitions = {
    "cache_write_key": _write_key,
    "cache_write_value": _write,
    "slot_write_key": _write_slot_keys,
    "slot_write_value": _write_slots,
}
