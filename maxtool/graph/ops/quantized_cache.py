"""Caches of keys and values in blocks, as ggml's Q8_0: int8, and a float16 scale for each 32."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.ops.caching import attended, require_by_row, score_options
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_float32, require_heads, require_position
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType
from maxtool.quantization import QuantizationEncoding

# Elements of a head that share a scale.
BLOCK = QuantizationEncoding.Q8_0.elements_per_block


@rule("quantize_q8_0")
def _infer_quantized(x: TensorType) -> tuple[TensorType, ...]:
    require_float32(x)
    *outer, dim = require_heads(x)
    blocks, rest = divmod(int(dim), BLOCK)
    require(not rest, f"heads of {dim} elements are not whole blocks of {BLOCK}")
    return (
        TensorType(DType.int8, x.shape, x.device),
        TensorType(DType.float16, [*outer, blocks], x.device),
    )


@rule("quantized_attention", numbers={5: DType.int32, 6: DType.int32})
def _infer_attention(
    query: TensorType,
    key: TensorType,
    key_scale: TensorType,
    value: TensorType,
    value_scale: TensorType,
    position: TensorType,
    *slot: TensorType,
    scale: float,  # noqa: ARG001 - part of the operation's signature
    window: int | None,
    softcap: float | None,
) -> tuple[TensorType, ...]:
    if slot:
        require_by_row(query, position, *slot)
    else:
        require_position(position)
    require(key.dtype is DType.int8, f"keys and values are int8, not {key.dtype.value}")
    batch = key.shape[0] if slot and key.rank else require_heads(query)[0]
    result = attended(query, key, value, batch, window, softcap, transposed=True)
    rows, heads, dim, context = key.shape
    blocks, rest = divmod(int(dim), BLOCK)
    require(not rest, f"heads of {dim} elements are not whole blocks of {BLOCK}")
    halves = key_scale.dtype is value_scale.dtype is DType.float16
    require(halves, "scales are float16")
    require(key_scale.shape == [rows, heads, blocks, context], "key scales are [..., blocks, keys]")
    expected = [rows, heads, context, blocks]
    require(value_scale.shape == expected, "value scales are [..., keys, blocks]")
    return result


def quantize_q8_0(x: TensorLike) -> tuple[Tensor, Tensor]:
    """Round heads to eight bits, with a scale for each 32 elements, bit for bit as ggml's Q8_0.

    A block with a NaN or an infinity gets the scale NaN, one with magnitudes above 8 million an
    infinite scale.

    Args:
        x: ``[batch, seq, heads, dim]``, float32; ``dim`` is a multiple of 32.

    Returns:
        Quants, int8 like ``x``, and scales, float16 ``[batch, seq, heads, dim / 32]``.
    """
    quants, scales = apply("quantize_q8_0", x)
    return quants, scales


def quantized_attention(
    query: TensorLike,
    key: tuple[Tensor, Tensor],
    value: tuple[Tensor, Tensor],
    position: TensorLike,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    slot: TensorLike | None = None,
) -> Tensor:
    """Causal attention over keys and values in blocks. CPUs alone have a kernel for this.

    As :func:`attention`, but for:

    Args:
        query: As there.
        key: Quants ``[batch, kv_heads, dim, context]`` and scales, ``dim / 32`` in place of
            ``dim``: what :func:`cache_write_key` made of each part of :func:`quantize_q8_0`.
        value: Quants ``[batch, kv_heads, context, dim]`` and scales, by :func:`cache_write_value`.
        position: As there; so are all others.
        scale: What scores are multiplied by.
        window: How many keys a query sees at most.
        softcap: The soft cap of scores.
        slot: Which rows of keys and values are seen.
    """
    places = [position] if slot is None else [position, slot]
    options = score_options(scale, window, softcap)
    return apply("quantized_attention", query, *key, *value, *places, **options)[0]
