"""Attention over a cache of keys and values, and writing into it."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.dim import Dim
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_float32, require_heads, require_position
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

# What keys and values in a cache may be; queries, and what is written, are float32.
CACHED = (DType.float32, DType.float16, DType.bfloat16)
# What else a cache may be of, written as it is: blocks of Q8_0, whose scales are float16.
BLOCKS = (DType.int8, DType.int32, DType.float16)

# A window of as many keys hides none, as positions are int32; kernels count with that, too.
_EVERY = 2**31 - 1


def _require_cached(*kinds: TensorType) -> None:
    for tensor_type in kinds:
        known = ", ".join(dtype.value for dtype in CACHED)
        named = f"keys and values are {known}, not {tensor_type.dtype.value}"
        require(tensor_type.dtype in CACHED, named)


@rule("cache_write_key", "cache_write_value", writes=0, numbers={2: DType.int32})
def _infer_cache_write(
    cache: TensorType, x: TensorType, position: TensorType, transposed: bool = False
) -> tuple[TensorType, ...]:
    require_position(position)
    require(cache.rank == 4, "the cache is [batch, heads, ...]")
    require(cache.shape[0] == x.shape[0], "the cache has the batch of x")
    return _written(cache, x, transposed)


@rule("slot_write_key", "slot_write_value", writes=0, numbers={2: DType.int32, 3: DType.int32})
def _infer_slot_write(
    cache: TensorType,
    x: TensorType,
    position: TensorType,
    slot: TensorType,
    transposed: bool = False,
) -> tuple[TensorType, ...]:
    require_by_row(x, position, slot)
    require(cache.rank == 4, "the cache has four dimensions")
    return _written(cache, x, transposed)


def _written(cache: TensorType, x: TensorType, transposed: bool) -> tuple[TensorType, ...]:
    if x.dtype not in BLOCKS or x.dtype is not cache.dtype:
        _require_cached(cache)
        require_float32(x)
    *_, heads, dim = require_heads(x)
    width_axis, said = (2, "dim, context") if transposed else (3, "context, dim")
    fits = cache.shape[1] == heads and cache.shape[width_axis] == dim
    require(fits, f"the cache is [batch, heads, {said}]")
    return (cache,)


def require_by_row(x: TensorType, *kinds: TensorType) -> None:
    """Require an int32 for each row of the batch."""
    fits = all(kind.dtype is DType.int32 and kind.shape == [x.shape[0]] for kind in kinds)
    require(fits, f"positions and slots are int32[{x.shape[0]}]")


@rule("attention", numbers={3: DType.int32})
def _infer_attention(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    position: TensorType,
    *sinks: TensorType,
    scale: float,  # noqa: ARG001 - part of the operation's signature
    window: int | None,
    chunked: bool,  # noqa: ARG001
    softcap: float | None,
    causal: bool,  # noqa: ARG001
    transposed: bool,
) -> tuple[TensorType, ...]:
    require_position(position)
    require_sinks(query, *sinks)
    _require_cached(key, value)
    batch = require_heads(query)[0]
    return attended(query, key, value, batch, window, softcap, transposed)


@rule("slot_attention", numbers={3: DType.int32, 4: DType.int32})
def _infer_slot_attention(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    position: TensorType,
    slot: TensorType,
    *sinks: TensorType,
    scale: float,  # noqa: ARG001 - part of the operation's signature
    window: int | None,
    chunked: bool,  # noqa: ARG001
    softcap: float | None,
    causal: bool,  # noqa: ARG001
    transposed: bool,
) -> tuple[TensorType, ...]:
    require_sinks(query, *sinks)
    _require_cached(key, value)
    require(key.rank == 4, "keys and values have four dimensions")
    require_heads(query)
    require_by_row(query, position, slot)
    return attended(query, key, value, key.shape[0], window, softcap, transposed)


def require_sinks(query: TensorType, *sinks: TensorType) -> None:
    """Require that there are none, or a float32 number for each head of queries."""
    require(len(sinks) <= 1, "there is one tensor of sinks")
    heads = require_heads(query)[2]
    fits = all(kind.dtype is DType.float32 and kind.shape == [heads] for kind in sinks)
    require(fits, f"sinks are float32[{heads}]")


def attended(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    batch: Dim,
    window: int | None,
    softcap: float | None,
    transposed: bool,
) -> tuple[TensorType, ...]:
    """Infer the result of attention over a cache of ``batch`` rows, whatever its type."""
    require_float32(query)
    *_, heads, dim = require_heads(query)
    require(key.rank == 4 and value.rank == 4, "keys and values have four dimensions")
    require(key.dtype is value.dtype, "keys and values are of one type")
    kv_heads, context = key.shape[1], key.shape[3 if transposed else 2]
    sizes = [dim, context] if transposed else [context, dim]
    said = "dim, context" if transposed else "context, dim"
    require(key.shape == [batch, kv_heads, *sizes], f"keys are [batch, kv, {said}]")
    require(value.shape == [batch, kv_heads, context, dim], "values are [batch, kv, context, dim]")
    require(kv_heads.is_static and kv_heads != 0, "the number of key/value heads is known")
    require(int(heads) % int(kv_heads) == 0, "query heads are a multiple of key/value heads")
    require(window is None or window > 0, "a window is at least 1")
    require(softcap is None or softcap > 0, "a soft cap is above 0")
    return (TensorType(query.dtype, query.shape, query.device),)


def cache_write_key(
    cache: Tensor,
    x: Tensor,
    position: TensorLike,
    *,
    transposed: bool = True,
    slot: TensorLike | None = None,
) -> Tensor:
    """Write keys ``x [batch, seq, heads, dim]`` into ``cache [batch, heads, dim, context]``.

    The write starts at ``position``, an int32 ``[1]``; what would land outside is dropped. It
    happens in place where the cache is an input of a ``BufferType``, and on a copy otherwise.
    Either way the cache after the write is what this returns: a graph refuses to read a buffer
    anew that was overwritten.

    Args:
        cache: float32, float16 or bfloat16: keys are rounded to its type. Or of what
            :func:`quantize_q8_0` gave.
        x: float32, or of the type of such a cache.
        position: Where the first key goes.
        transposed: Whether keys lie transposed, so that the scores of neighbouring keys are
            neighbours; the cache is ``[batch, heads, context, dim]`` otherwise.
        slot: Where it is not None, int32 ``[batch]``: for each row of ``x``, which one of the
            cache is written; no two rows have the same. The cache may have any number of them, and
            positions are int32 ``[batch]``, too.
    """
    if slot is None:
        return apply("cache_write_key", cache, x, position, transposed=bool(transposed))[0]
    return apply("slot_write_key", cache, x, position, slot, transposed=bool(transposed))[0]


def cache_write_value(
    cache: Tensor, x: Tensor, position: TensorLike, *, slot: TensorLike | None = None
) -> Tensor:
    """Write values ``x [batch, seq, heads, dim]`` into ``cache [batch, heads, context, dim]``.

    As :func:`cache_write_key`.
    """
    if slot is None:
        return apply("cache_write_value", cache, x, position)[0]
    return apply("slot_write_value", cache, x, position, slot)[0]


def attention(
    query: TensorLike,
    key: Tensor,
    value: Tensor,
    position: TensorLike,
    *,
    scale: float,
    window: int | None = None,
    chunked: bool = False,
    softcap: float | None = None,
    causal: bool = True,
    transposed: bool = True,
    slot: TensorLike | None = None,
    sinks: TensorLike | None = None,
) -> Tensor:
    """Attention with grouped queries over a cache, which holds the keys of the queries, too.

    Query ``i`` sees the keys ``0 .. position + i``, or the last ``window`` of them, or of its own
    chunk those up to its own.

    Args:
        query: ``[batch, seq, heads, dim]``.
        key: ``[batch, kv_heads, dim, context]``; float32, float16 or bfloat16.
        value: ``[batch, kv_heads, context, dim]``, of the type of the keys.
        position: int32 ``[1]``: where the first query stands among the keys.
        scale: What scores are multiplied by.
        window: How many keys a query sees at most, its own included.
        chunked: Whether that many keys, from the first of all on, are a chunk each, and a query
            sees none before its own chunk.
        softcap: Scores become ``softcap * tanh(score / softcap)``, before any is hidden.
        causal: Whether a query sees none of the keys behind its own. Otherwise it sees those of all
            other queries, too, which a window must not be narrower than.
        transposed: Whether keys are as above; ``[batch, kv_heads, context, dim]`` otherwise.
        slot: Where it is not None, int32 ``[batch]``: for each row of queries, which one of the
            keys and values it sees, of which there may be any number. Positions are int32
            ``[batch]`` then, too. CPUs alone have a kernel for this.
        sinks: float32 ``[heads]``: the score of one more key of each head, whose value is zero
            and which all queries see (Xiao et al. 2023, as gpt-oss has it). CPUs alone have a
            kernel for this.

    Returns:
        ``[batch, seq, heads, dim]``.
    """
    options = score_options(scale, window, softcap, causal=causal, chunked=chunked)
    options |= {"transposed": bool(transposed)}
    further = [] if sinks is None else [sinks]
    if slot is None:
        return apply("attention", query, key, value, position, *further, **options)[0]
    return apply("slot_attention", query, key, value, position, slot, *further, **options)[0]


def score_options(
    scale: float, window: int | None, softcap: float | None, *, causal: bool, chunked: bool
) -> dict[str, object]:
    """Return what becomes of scores, as attributes of a node."""
    window = None if window is None or window >= _EVERY else window
    return {
        "scale": float(scale),
        "window": window,
        "chunked": bool(chunked) and window is not None,
        "softcap": None if softcap is None else float(softcap),
        "causal": bool(causal),
    }
