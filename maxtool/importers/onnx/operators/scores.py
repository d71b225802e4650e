"""Attention of heads: what hides keys from queries, and what else becomes of the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known


def numbers_of(x: Tensor, axis: int) -> Tensor:
    """0, 1, 2, ... along a dimension of ``x``, int64."""
    return ops.range(0, x.shape[axis])


def apart(x: Tensor, heads: int) -> Tensor:
    """``[batch, length, heads * dim]`` as ``[batch, heads, length, dim]``."""
    require(x.rank == 3 and x.shape[2].is_static, f"{x.type} is not [batch, length, hidden]")
    width = int(x.shape[2])
    require(heads > 0 and width % heads == 0, f"{width} elements in {heads} heads")
    return ops.permute(ops.reshape(x, [*x.shape[:2], heads, width // heads]), (0, 2, 1, 3))


def together(heads: Tensor) -> Tensor:
    """``[batch, heads, length, dim]`` as ``[batch, length, heads * dim]``."""
    batch, count, length, dim = heads.shape
    return ops.reshape(ops.permute(heads, (0, 2, 1, 3)), [batch, length, int(count) * int(dim)])


def joined(past: Tensor | None, new: Tensor) -> Tensor:
    """Keys or values of a cache with new ones behind them."""
    if past is None or past.shape[2] == 0:
        return new
    return ops.concat([past, new], 2)


@dataclass(frozen=True, slots=True)
class Scoring:
    """Steps from products of queries and keys to shares.

    Attributes:
        scale: Their factor; None for ``dim ** -0.5``.
        causal: Whether a query sees only the keys up to its own.
        softcap: What they are squeezed below by a hyperbolic tangent; 0 for nothing.
        sink: A score for each head that has no value; None for none.
    """

    scale: float | None = None
    causal: bool = False
    softcap: float = 0.0
    sink: Tensor | None = None

    def attended(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The values by the shares of their keys, ``[batch, heads, queries, dim]``.

        ``mask`` is what :func:`maxtool.graph.ops.scaled_dot_product_attention` takes.
        """
        if self.softcap == 0.0 and self.sink is None:
            operands = (query, key, value, mask)
            causal, scale = self.causal, self.scale
            return ops.scaled_dot_product_attention(*operands, causal=causal, scale=scale)
        return ops.cast(self._composed(query, key, value, mask), query.dtype)

    def _composed(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The same by operations of their own, in float32."""
        require(not self.causal, "a softcap is computed with a mask")
        q, k, v = (ops.cast(one, _wide(one)) for one in (query, key, value))
        batch, heads, length, dim = q.shape
        groups = int(heads) // int(k.shape[1])
        grouped = ops.reshape(q, [batch, k.shape[1], groups, length, dim])
        keys, values = (ops.unsqueeze(one, 2) for one in (k, v))
        scale = self.scale if self.scale is not None else int(dim) ** -0.5
        products = ops.matmul(grouped, ops.transpose(keys, -1, -2)) * scale
        scores = ops.reshape(products, [batch, heads, length, k.shape[2]])
        if self.softcap:
            scores = ops.tanh(scores / self.softcap) * self.softcap
        shares = self._shares(_masked(scores, mask))
        apart_ = ops.reshape(shares, [batch, k.shape[1], groups, length, k.shape[2]])
        result = ops.matmul(apart_, values)
        return ops.reshape(result, [batch, heads, length, v.shape[3]])

    def _shares(self, scores: Tensor) -> Tensor:
        if self.sink is None:
            return ops.softmax(scores)
        sink = ops.reshape(ops.cast(self.sink, scores.dtype), [1, -1, 1, 1])
        column = ops.broadcast_to(sink, [*scores.shape[:3], 1])
        shares = ops.softmax(ops.concat([column, scores], -1))
        return ops.slice_tensor(shares, (..., slice(1, None)))


def _wide(x: Tensor) -> DType:
    return DType.float64 if x.dtype is DType.float64 else DType.float32


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores
    if mask.dtype is DType.bool:
        return ops.where(mask, scores, known(np.array(-np.inf, scores.dtype.to_numpy())))
    return scores + ops.cast(mask, scores.dtype)


def filtered(visible: Tensor, value: float) -> Tensor:
    """Numbers to add to scores: 0 where a key is seen, and a value elsewhere."""
    return ops.where(visible, known(np.float32(0)), known(np.float32(value)))


def added(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of masks that may be absent."""
    if first is None or second is None:
        return second if first is None else first
    return first + ops.cast(second, first.dtype)
