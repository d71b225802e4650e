"""Attention without a cache, in which every token sees every other, or those before it."""

from __future__ import annotations

from maxtool.architectures.rotary_angles import Angles
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.nn import Linear, Module


class HeadsOfAttention(Module[..., Tensor]):
    """Queries, keys and values of heads, and the output that is made of what they find.

    Args:
        hidden: The width of a token's vector.
        heads: How many heads there are.
        head_dim: The width of each.
        dtype: The element type of the matrices.
        qkv_bias: Whether queries, keys and values have biases.
        k_bias: Whether keys have them where the others do.
        o_bias: Whether the output has one.
        causal: Whether a token sees only those up to itself.
        scale: What scores are multiplied by; ``head_dim ** -0.5`` when None.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        head_dim: int,
        dtype: DType,
        *,
        qkv_bias: bool = True,
        k_bias: bool = True,
        o_bias: bool = True,
        causal: bool = False,
        scale: float | None = None,
    ) -> None:
        inner = heads * head_dim
        self.q = Linear(hidden, inner, dtype, has_bias=qkv_bias)
        self.k = Linear(hidden, inner, dtype, has_bias=qkv_bias and k_bias)
        self.v = Linear(hidden, inner, dtype, has_bias=qkv_bias)
        self.o = Linear(inner, hidden, dtype, has_bias=o_bias)
        self.heads, self.head_dim, self.causal = heads, head_dim, causal
        self.scale = scale

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``[batch, seq, heads, head_dim]``."""
        return self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The output for ``[batch, seq, heads, head_dim]`` of each."""
        batch, seq = query.shape[:2]
        query, key, value = (tensor.permute([0, 2, 1, 3]) for tensor in (query, key, value))
        found = ops.scaled_dot_product_attention(
            query, key, value, mask, causal=self.causal, scale=self.scale
        )
        rows = found.permute([0, 2, 1, 3])
        return self.o(rows.reshape([batch, seq, self.heads * self.head_dim]))

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape([*x.shape[:2], self.heads, self.head_dim])


class EncoderAttention(HeadsOfAttention):
    """Attention of every token over every token that a mask does not hide."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, angles: Angles | None = None
    ) -> Tensor:
        """Map ``[batch, seq, hidden]`` to its shape; ``mask [batch, 1, 1, seq]`` hides padding.

        A mask of floats that broadcasts to ``[batch, heads, seq, seq]`` is added to scores.
        """
        query, key, value = self._parts(x)
        if angles is not None:
            query, key = (ops.rope(one, *angles) for one in (query, key))
        return self._mixed(query, key, value, mask)

    def across(self, x: Tensor, memory: Tensor) -> Tensor:
        """Queries of ``x [batch, queries, hidden]`` over ``memory [batch, keys, hidden]``."""
        query, key, value = self.q(x), self.k(memory), self.v(memory)
        return self._mixed(self._heads(query), self._heads(key), self._heads(value), None)
