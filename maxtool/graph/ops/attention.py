"""Attention without a cache: any queries over any keys, with a mask."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.dim import Dim
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_floats
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("scaled_dot_product_attention")
def _infer(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    *mask: TensorType,
    causal: bool,  # noqa: ARG001 - part of the operation's signature
    scale: float | None,  # noqa: ARG001
) -> tuple[TensorType, ...]:
    for tensor_type in (query, key, value):
        require_floats(tensor_type)
        require(tensor_type.dtype is query.dtype, "operands are of one type; cast the others")
        known = tensor_type.rank == 4 and tensor_type.shape[1::2].is_static
        require(known, "operands are [batch, heads, length, dim], heads and dim known")
    batch, heads, length, dim = query.shape
    _, kv_heads, keys, _ = key.shape
    require(key.shape == [batch, kv_heads, keys, dim], f"keys are [{batch}, heads, keys, {dim}]")
    expected = [batch, kv_heads, keys, value.shape[3]]
    require(value.shape == expected, f"values are [{batch}, {kv_heads}, {keys}, dim]")
    require(dim != 0 and value.shape[3] != 0, "heads have elements")
    grouped = kv_heads != 0 and int(heads) % int(kv_heads) == 0
    require(grouped, "query heads are a multiple of key/value heads")
    for mask_type in mask:
        _require_mask(mask_type, query, [batch, heads, length, keys])
    return (TensorType(query.dtype, [batch, heads, length, value.shape[3]], query.device),)


def _require_mask(mask: TensorType, query: TensorType, sizes: list[Dim]) -> None:
    fits = mask.dtype in (DType.bool, DType.float32, query.dtype)
    require(fits, f"a mask is bool or {query.dtype.value}, not {mask.dtype.value}")
    pairs = zip(reversed(mask.shape), reversed(sizes), strict=False)
    fits = mask.rank <= 4 and all(dim in (1, size) for dim, size in pairs)
    require(fits, f"the mask broadcasts to {[str(size) for size in sizes]}")


def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    mask: TensorLike | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``, head by head.

    Args:
        query: ``[batch, heads, queries, dim]``, floats.
        key: ``[batch, kv_heads, keys, dim]``; each head of keys serves ``heads / kv_heads`` heads
            of queries.
        value: ``[batch, kv_heads, keys, value_dim]``.
        mask: What broadcasts to ``[batch, heads, queries, keys]``: bool, where False hides a key
            from a query, or floats that are added to the scores.
        causal: Whether a query sees only the keys up to its own; the last query and the last key
            belong together.
        scale: What scores are multiplied by; ``dim ** -0.5`` when None.

    Returns:
        ``[batch, heads, queries, value_dim]``; zeros for a query that sees no key.
    """
    operands = [query, key, value] if mask is None else [query, key, value, mask]
    factor = None if scale is None else float(scale)
    options = {"causal": bool(causal), "scale": factor}
    return apply("scaled_dot_product_attention", *operands, **options)[0]
