"""Attention of a sequence to itself: what both styles share, and the layer of the graph style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Tensor, ops
from maxtool.nn.base import ModuleBase
from maxtool.nn.layers import Linear
from maxtool.nn.module import Module

Projection: TypeAlias = ModuleBase[[Tensor], Tensor]


class SelfAttention:
    """Multi-head attention with grouped queries, from whichever projections a style has."""

    q_proj: Projection
    k_proj: Projection
    v_proj: Projection
    qkv_proj: Projection
    o_proj: Projection

    def _configure(
        self,
        heads: tuple[int, int],
        sizes: tuple[int, int],
        scale: float | None,
        causal: bool,
        rope: ModuleBase[..., Tensor] | None,
    ) -> None:
        """Keep the options: query and key/value heads; hidden state and head."""
        (self.num_attention_heads, self.num_key_value_heads) = heads
        (self.hidden_size, self.head_dim), self.causal, self.rope = sizes, causal, rope
        name = type(self).__name__
        if min(*heads, *sizes) < 1:
            raise ValueError(f"{name}: heads {heads} and sizes {sizes} are above 0")
        if heads[0] % heads[1]:
            raise ValueError(f"{name}: {heads[0]} heads do not share {heads[1]} of keys")
        self.scale = self.head_dim**-0.5 if scale is None else scale

    def _project(
        self, make: Callable[[int, int, bool], Projection], qkv: bool, o: bool, stacked: bool
    ) -> None:
        """Make three projections, or one, and the last; ``qkv`` and ``o`` say which have a bias."""
        hidden, wide, narrow = self.hidden_size, *self._widths
        if stacked:
            self.qkv_proj = make(hidden, wide + 2 * narrow, qkv)
        else:
            self.q_proj = make(hidden, wide, qkv)
            self.k_proj = make(hidden, narrow, qkv)
            self.v_proj = make(hidden, narrow, qkv)
        self.o_proj = make(wide, hidden, o)

    @property
    def _widths(self) -> tuple[int, int]:
        """Return the widths of all queries, and of all keys or values."""
        return self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim

    def forward(self, x: Tensor, mask: Tensor | None = None, start_pos: int | Tensor = 0) -> Tensor:
        """Map ``[batch, seq, hidden]`` to the same shape.

        Args:
            x: The hidden state.
            mask: What broadcasts to ``[batch, heads, seq, seq]``: bool, where False hides a key
                from a query, or floats that are added to the scores.
            start_pos: The position of the first token, for rotary embedding.

        Raises:
            ValueError: If ``x`` or the mask does not fit, naming the shapes.
        """
        if x.rank != 3 or x.shape[2] != self.hidden_size:
            name, hidden = type(self).__name__, self.hidden_size
            raise ValueError(f"{name} takes [batch, seq, {hidden}], not {x.type}")
        query, key, value = (self._heads(part) for part in self._projected(x))
        if self.rope is not None:
            query, key = self.rope(query, start_pos), self.rope(key, start_pos)
        query, key, value = (ops.permute(part, [0, 2, 1, 3]) for part in (query, key, value))
        mixed = ops.scaled_dot_product_attention(
            query, key, value, mask, causal=self.causal, scale=self.scale
        )
        rows = ops.permute(mixed, [0, 2, 1, 3])
        return self.o_proj(ops.reshape(rows, [*x.shape[:2], self._widths[0]]))

    def _projected(self, x: Tensor) -> Sequence[Tensor]:
        if not hasattr(self, "qkv_proj"):
            return self.q_proj(x), self.k_proj(x), self.v_proj(x)
        together, (wide, narrow) = self.qkv_proj(x), self._widths
        ends = (wide, wide + narrow, wide + 2 * narrow)
        return [together[:, :, start:end] for start, end in zip((0, *ends), ends, strict=False)]

    def _heads(self, x: Tensor) -> Tensor:
        """``[batch, seq, heads, head_dim]``."""
        return ops.reshape(x, [*x.shape[:2], int(x.shape[2]) // self.head_dim, self.head_dim])


class MultiheadAttention(SelfAttention, Module[..., Tensor]):
    """Attention of a sequence to itself.

    Args:
        num_attention_heads: Heads of queries.
        hidden_size: Width of the hidden state.
        devices: Where the weights live: one device.
        dtype: The element type of the weights; biases are float32.
        scale: What scores are multiplied by; ``head_dim ** -0.5`` by default.
        qkv_has_bias: Whether the projections to queries, keys and values have a bias.
        o_proj_has_bias: Whether the last projection has one.
        stacked_qkv: Whether the first three are one.
        num_key_value_heads: Heads of keys and values; as many as of queries by default.
        head_dim: Width of a head; ``hidden_size / num_attention_heads`` by default.
        causal: Whether a token sees only those up to itself.
        rope: A layer that turns queries and keys by their positions.

    Raises:
        ValueError: If the sizes do not fit together, or several devices are given.
    """

    def __init__(
        self,
        num_attention_heads: int,
        hidden_size: int,
        devices: Sequence[DeviceRef] | None = None,
        dtype: DType = DType.float32,
        scale: float | None = None,
        qkv_has_bias: bool = False,
        o_proj_has_bias: bool = False,
        stacked_qkv: bool = False,
        *,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        causal: bool = False,
        rope: Module[..., Tensor] | None = None,
    ) -> None:
        heads = num_attention_heads, num_key_value_heads or num_attention_heads
        width = hidden_size // max(num_attention_heads, 1) if head_dim is None else head_dim
        self._configure(heads, (hidden_size, width), scale, causal, rope)
        if len(devices or ()) > 1:
            raise ValueError("MultiheadAttention is on one device: split its weights with to()")
        device = devices[0] if devices else None

        def make(inner: int, outer: int, bias: bool) -> Projection:
            return Linear(inner, outer, dtype, device, has_bias=bias)

        self._project(make, qkv_has_bias, o_proj_has_bias, stacked_qkv)
