"""Caches of keys and values in blocks, as ggml's Q8_0: int8, and a float16 scale for each 32."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.ops.caching import attended, require_by_row, require_sinks, score_options
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_float32, require_heads, require_position
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType
from maxtool.quantization import QuantizationEncoding

BLOCK = QuantizationEncoding.Q8_0.elements_per_block  # elements of a head that share a scale
WORD = 4  # quants in an int32


@rule("quantize_q8_0")
def _infer_quantized(x: TensorType, packed: bool) -> tuple[TensorType, ...]:
    require_float32(x)
    *outer, dim = require_heads(x)
    blocks, rest = divmod(int(dim), BLOCK)
    require(not rest, f"heads of {dim} elements are not whole blocks of {BLOCK}")
    quants = TensorType(DType.int8, x.shape, x.device)
    words = TensorType(DType.int32, [*outer, int(dim) // WORD], x.device)
    return (
        words if packed else quants,
        TensorType(DType.float16, [*outer, blocks], x.device),
    )


@rule("quantized_attention", numbers={5: DType.int32})
def _infer_attention(
    query: TensorType,
    key: TensorType,
    key_scale: TensorType,
    value: TensorType,
    value_scale: TensorType,
    position: TensorType,
    *further: TensorType,
    scale: float,  # noqa: ARG001 - part of the operation's signature
    window: int | None,
    chunked: bool,  # noqa: ARG001
    softcap: float | None,
    causal: bool,  # noqa: ARG001
) -> tuple[TensorType, ...]:
    slot = [kind for kind in further if kind.dtype is DType.int32]
    require_sinks(query, *(kind for kind in further if kind.dtype is not DType.int32))
    if slot:
        require_by_row(query, position, *slot)
    else:
        require_position(position)
    fits = key.dtype is DType.int32 and key.rank == 4 and key.shape[2].is_static
    require(fits, "keys are int32[batch, kv, dim / 4, context], dim known")
    rows, heads, words, context = key.shape
    dim = WORD * int(words)
    whole = TensorType(value.dtype, [rows, heads, dim, context], key.device)
    batch = rows if slot else require_heads(query)[0]
    result = attended(query, whole, value, batch, window, softcap, transposed=True)
    require(value.dtype is DType.int8, f"values are int8, not {value.dtype.value}")
    blocks, rest = divmod(dim, BLOCK)
    require(not rest, f"heads of {dim} elements are not whole blocks of {BLOCK}")
    halves = key_scale.dtype is value_scale.dtype is DType.float16
    require(halves, "scales are float16")
    require(key_scale.shape == [rows, heads, blocks, context], "key scales are [..., blocks, keys]")
    expected = [rows, heads, context, blocks]
    require(value_scale.shape == expected, "value scales are [..., keys, blocks]")
    return result


def quantize_q8_0(x: TensorLike, *, packed: bool = False) -> tuple[Tensor, Tensor]:
    """Round heads to eight bits, with a scale for each 32 elements, bit for bit as ggml's Q8_0.

    A block with a NaN or an infinity gets the scale NaN, one with magnitudes above 8 million an
    infinite scale.

    Args:
        x: ``[batch, seq, heads, dim]``, float32; ``dim`` is a multiple of 32.
        packed: Whether four neighbours become one int32, from the lowest byte on.

    Returns:
        Quants, int8 like ``x`` or int32 with ``dim / 4`` in place of ``dim``, and scales, float16
        ``[batch, seq, heads, dim / 32]``.
    """
    quants, scales = apply("quantize_q8_0", x, packed=bool(packed))
    return quants, scales


def quantized_attention(
    query: TensorLike,
    key: tuple[Tensor, Tensor],
    value: tuple[Tensor, Tensor],
    position: TensorLike,
    *,
    scale: float,
    window: int | None = None,
    chunked: bool = False,
    softcap: float | None = None,
    causal: bool = True,
    slot: TensorLike | None = None,
    sinks: TensorLike | None = None,
) -> Tensor:
    """Attention over keys and values in blocks. CPUs alone have a kernel for this.

    Queries are rounded to eight bits too, by a scale for each 32 of their elements.

    As :func:`attention`, but for:

    Args:
        query: As there.
        key: Packed quants ``[batch, kv_heads, dim / 4, context]`` and scales
            ``[batch, kv_heads, dim / 32, context]``: what :func:`cache_write_key` made of each part
            of :func:`quantize_q8_0`.
        value: Quants ``[batch, kv_heads, context, dim]`` and scales
            ``[batch, kv_heads, context, dim / 32]``, by :func:`cache_write_value`.
        position: As there; so are all others.
        scale: What scores are multiplied by.
        window: How many keys a query sees at most.
        chunked: Whether so many are a chunk.
        softcap: The soft cap of scores.
        causal: Whether a query sees none of the keys behind its own.
        slot: Which rows of keys and values are seen.
        sinks: The score of one more key of each head.
    """
    places = [position, *(each for each in (slot, sinks) if each is not None)]
    options = score_options(scale, window, softcap, causal=causal, chunked=chunked)
    return apply("quantized_attention", query, *key, *value, *places, **options)[0]
