"""Attention of a decoder to what an encoder gives: the source.

Its keys and values are computed once, when the source is read, and are the same for every token.
"""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.dtype import DType
from maxtool.graph import BufferType, Tensor, ops
from maxtool.nn import Linear, Module

PREFIX = "source_"  # of the names of its buffers


class CrossAttention(Module[[Tensor, Cache, Tensor | None], Tensor]):
    """Attention in which every token sees the whole source."""

    def __init__(
        self, config: DecoderConfig, positions: int, dtype: DType, form: CacheLayout
    ) -> None:
        hidden, dim = config.hidden_size, config.head_dim
        inner, shared = config.n_heads * dim, config.n_kv_heads * dim
        has_bias = config.qkv_bias
        self.q = Linear(hidden, inner, dtype, has_bias=has_bias)
        self.k = Linear(hidden, shared, dtype, has_bias=has_bias and config.k_bias)
        self.v = Linear(hidden, shared, dtype, has_bias=has_bias)
        self.o = Linear(inner, hidden, dtype, has_bias=config.o_bias)
        self.n_kv_heads, self.head_dim, self.positions = config.n_kv_heads, dim, positions
        self.form = form
        self.scale = config.score_scale

    @property
    def buffers(self) -> dict[str, BufferType]:
        """The keys and values of the source, by name."""
        parts = self.form.buffers(self.n_kv_heads, self.head_dim, self.positions)
        return {PREFIX + name: kind for name, kind in parts.items()}

    def read(self, source: Tensor, cache: Cache) -> Cache:
        """The cache with the keys and values of ``source [batch, positions, hidden]``."""
        parts = self.form.parts(self._heads(self.k(source)), self._heads(self.v(source)))
        return self.form.written(cache, parts, (_position(0, source), None))

    def forward(self, x: Tensor, cache: Cache, length: Tensor | None = None) -> Tensor:
        """Attention of ``x [batch, seq, hidden]`` over the source that the cache holds.

        ``length``, int32 ``[1]``, is how many positions that has; None for all there may be.
        """
        query = self._heads(self.q(x))
        if x.shape[1] == 1:  # one that sees all keys up to the last
            last = _position(self.positions - 1, x) if length is None else length - 1
            mixed = self.form.attention(query, cache, (last, None), scale=self.scale)
        else:
            seen = None if length is None else self._seen(length)
            mixed = self.form.attention_to_all(query, cache, seen, scale=self.scale)
        return self.o(mixed.reshape([*x.shape[:2], self.q.weight.shape[0]]))

    def _seen(self, length: Tensor) -> Tensor:
        """A mask of the positions that a source has."""
        places = ops.range(0, self.positions, dtype=DType.int32, device=length.device)
        return ops.greater(length, places).reshape([1, 1, 1, self.positions])

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape([*x.shape[:2], int(x.shape[2]) // self.head_dim, self.head_dim])


def _position(number: int, x: Tensor) -> Tensor:
    return Tensor([number], DType.int32, x.device)
