"""Grouped-query attention over a cache."""

from __future__ import annotations

from typing import TypeAlias

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.rotary_angles import Angles, rotated
from maxtool.architectures.sliding_cache import Seen, read_and_write
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import Linear, Module, RMSNorm
from maxtool.nn.tensor_parallel import Role

# Hidden state, angles, location and cache, to the hidden state and the written cache.
CachedModule: TypeAlias = Module[
    [Tensor, Angles | None, Location, Cache | None], tuple[Tensor, Cache | None]
]


class Attention(CachedModule):
    """Attention in which each head of keys serves several heads of queries.

    A query sees ``window`` keys at most, its own included; None for all. ``slides`` is whether the
    cache has room for the window alone.
    """

    def __init__(
        self,
        config: DecoderConfig,
        window: int | None,
        dtype: DType,
        form: CacheLayout,
        *,
        slides: bool = False,
    ) -> None:
        hidden, dim = config.hidden_size, config.head_dim
        inner, shared = config.n_heads * dim, config.n_kv_heads * dim
        self.q = Linear(hidden, inner, dtype, has_bias=config.qkv_bias)
        self.k = Linear(hidden, shared, dtype, has_bias=config.qkv_bias)
        self.v = Linear(hidden, shared, dtype, has_bias=config.qkv_bias)
        self.o = Linear(inner, hidden, dtype, has_bias=config.o_bias)
        self.q.role, self.o.role = Role.OUTPUTS, Role.INPUTS
        if config.n_kv_heads > 1:  # a single one serves the queries of every device
            self.k.role = self.v.role = Role.OUTPUTS
        self.qk_norm = config.qk_norm
        if config.qk_norm != "none":
            widths = (dim, dim) if config.qk_norm == "head" else (inner, shared)
            self.q_norm, self.k_norm = (RMSNorm(width, config.norm_eps) for width in widths)
        self.head_dim = dim
        self.window, self.slides = window, slides
        self.form = form
        self.softcap = config.attention_softcap
        self.scale = dim**-0.5 if config.attention_scale is None else config.attention_scale

    def forward(
        self, x: Tensor, angles: Angles | None, location: Location, cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """Attention of ``x [batch, seq, hidden]`` over what the cache holds and itself.

        The first token of ``x`` stands at ``location``; returns the updated cache too.
        """
        query, key, value = self._projected(x)
        if angles is not None:
            query, key = (rotated(tensor, angles, location[0]) for tensor in (query, key))
        seen = self._seen(self.form.parts(key, value), location, cache)
        mixed = self.form.attention(
            query,
            seen.parts,
            seen.location,
            scale=self.scale,
            window=self.window,
            softcap=self.softcap,
        )
        width = int(query.shape[2]) * self.head_dim
        return self.o(mixed.reshape([*x.shape[:2], width])), seen.cache

    def _seen(self, new: Cache, location: Location, cache: Cache | None) -> Seen:
        """The keys and values that are attended to, and the written cache."""
        if cache is None:
            return Seen(self.form.laid(new), location, None)
        if self.slides and self.window is not None:
            return read_and_write(self.form, cache, new, location, self.window)
        written = self.form.written(cache, new, location)
        return Seen(written, location, written)

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head, the former two normalised if that is asked for."""
        query, key, value = self.q(x), self.k(x), self.v(x)
        if self.qk_norm == "full":
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (self._heads(tensor) for tensor in (query, key, value))
        if self.qk_norm == "head":
            query, key = self.q_norm(query), self.k_norm(key)
        return query, key, value

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape([*x.shape[:2], int(x.shape[2]) // self.head_dim, self.head_dim])
