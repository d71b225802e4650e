"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434), over a cache of latents.

Keys and values are projections of a latent of each token. A score is a product of a query and such
a projection, so the query can be projected back instead, once, and meet the latents themselves: all
heads of queries then share one key, the latent with the rotated key behind it, and what they mix
are latents again, of which each head makes its value (section 2.1.2, "absorb"). Only the latents
are kept, for any number of heads.
"""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.layer_state import CachedModule, LayerState
from maxtool.architectures.rope_scaling import score_factor
from maxtool.architectures.rotary_angles import Turn, rotated
from maxtool.architectures.sliding_cache import Seen, attended_parts, own_parts
from maxtool.architectures.sparse_index import AXIS, BUFFER, SparseIndex
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import Linear, Module, RMSNorm


class HeadLinear(Module[[Tensor], Tensor]):
    """A matrix for each head: a product of each token with all of them.

    Attributes:
        weight: ``[heads, out, in]``.
    """

    def __init__(self, heads: int, in_dim: int, out_dim: int, dtype: DType) -> None:
        self.weight = Weight("weight", dtype, (heads, out_dim, in_dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, seq, heads, in]`` to ``[batch, seq, heads, out]``."""
        numbers = ops.range(0, int(x.shape[2]), dtype=DType.int64, device=x.device)
        chosen = ops.broadcast_to(numbers.reshape([1, 1, x.shape[2]]), x.shape[:3])
        return ops.expert_linear(x, self.weight, chosen)


class Latent(Module[[Tensor], Tensor]):
    """A projection to fewer elements, normalised by their root mean square."""

    def __init__(self, config: DecoderConfig, size: int, dtype: DType) -> None:
        eps = config.norm_eps if config.latent_eps is None else config.latent_eps
        self.down = Linear(config.hidden_size, size, dtype, has_bias=config.qkv_bias)
        self.norm = RMSNorm(size, eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to ``[..., size]``."""
        return self.norm(self.down(x))


class LatentAttention(CachedModule):
    """Attention in which the heads' keys and values are made of one latent of each token.

    A query sees the keys that the options of its layer say. The cache has room for ``context``
    positions, or for the layer's window alone where its form slides. An index chooses keys only
    where there may be more of them than it chooses.
    """

    def __init__(
        self, config: DecoderConfig, layer: int, dtype: DType, form: CacheLayout, context: int
    ) -> None:
        hidden, heads = config.hidden_size, config.n_heads
        self.turned, plain = config.rotated, config.plain_dim or config.head_dim
        value_dim = config.value_dim or config.head_dim
        self.size, wide = config.latent_size or 0, config.query_latent_size
        sizes = heads * plain, heads * self.turned
        self.q_latent = None if wide is None else Latent(config, wide, dtype)
        if wide is None:
            self.q, self.q_rope = (Linear(hidden, n, dtype) for n in sizes)
        else:
            self.q_up, self.q_up_rope = (Linear(wide, n, dtype) for n in sizes)
        self.latent = Latent(config, self.size, dtype)
        self.k_rope = Linear(hidden, self.turned, dtype, has_bias=config.qkv_bias)
        self.k_up = HeadLinear(heads, plain, self.size, dtype)
        self.v_up = HeadLinear(heads, self.size, value_dim, dtype)
        self.o = Linear(heads * value_dim, hidden, dtype, has_bias=config.o_bias)
        self.index = SparseIndex(config, dtype) if config.has_index(layer) else None
        self.chooses = config.index_topk is not None and context > config.index_topk
        self.heads, self.form = heads, form
        self.window, self.chunked = config.window(layer), config.chunked_window
        self.room = form.room(self.window, context)
        self.slides = self.room < context
        self.softcap = config.attention_softcap
        self.scale = config.score_scale * score_factor(config)

    def state(self) -> LayerState:
        """The latents with the rotated keys behind them, as keys and as values.

        The keys of an index come last.
        """
        buffers = self.form.buffers(1, self.size + self.turned, self.room)
        positions = self.form.positions
        if self.index is not None and self.chooses:
            buffers |= {BUFFER: self.index.buffer(self.form.rows, self.room)}
            positions |= {BUFFER: AXIS}
        return LayerState(buffers, positions, self.room)

    def forward(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """Attention of ``x [batch, seq, hidden]`` over what the cache holds and itself.

        The first token of ``x`` stands at ``location``; returns the updated cache too.
        """
        mixed, _, kept = self.attend(x, turn, location, cache, ())
        return mixed, kept

    def attend(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None, given: Cache
    ) -> tuple[Tensor, Cache, Cache | None]:
        """The same, to the keys that are ``given`` where there is no index of its own.

        Returns what was chosen, and the updated cache.
        """
        read = None if self.q_latent is None else self.q_latent(x)
        query, key = self._queries(x, read, turn, location), self._keys(x, turn, location)
        chosen: Cache = given
        written: Cache = ()
        if self.index is not None and self.chooses and read is not None:
            index_keys = None if cache is None else cache[-1]
            cache = None if cache is None else cache[:-1]
            mask, index_keys = self.index(x, read, turn, location, index_keys)
            chosen, written = (mask,), (index_keys,)
        window = self.window if self.slides else None
        new = self.form.parts(key, key)
        seen = attended_parts(self.form, new, location, cache, window, chunked=self.chunked)
        mixed = self._mixed(query, seen, chosen)
        values = self.v_up(mixed[..., : self.size])
        width = self.heads * int(values.shape[3])
        made = self.o(values.reshape([*x.shape[:2], width]))
        return made, chosen, None if seen.cache is None else (*seen.cache, *written)

    def _mixed(self, query: Tensor, seen: Seen, chosen: Cache) -> Tensor:
        """Attention of queries to the keys that were chosen, or to all before them."""
        if chosen:
            parts = own_parts(seen.parts, seen.location[1])
            return self.form.attention_to_all(query, parts, chosen[0], scale=self.scale)
        return self.form.attention(
            query,
            seen.parts,
            seen.location,
            scale=self.scale,
            window=self.window,
            chunked=self.chunked,
            softcap=self.softcap,
            sinks=None,
        )

    def _queries(self, x: Tensor, read: Tensor | None, turn: Turn, location: Location) -> Tensor:
        """Heads ``[batch, seq, heads, size + turned]`` as they meet latents and rotated keys.

        They are made of the latent ``read``, or where that is None of ``x``.
        """
        if read is None:
            parts = self.q(x), self.q_rope(x)
        else:
            parts = self.q_up(read), self.q_up_rope(read)
        plain, own = (self._by_head(part, self.heads) for part in parts)
        query = ops.concat([self.k_up(plain), _turned(own, turn, location)], 3)
        factor = turn.factor
        return query if factor is None else query * factor

    def _keys(self, x: Tensor, turn: Turn, location: Location) -> Tensor:
        """Latents and rotated keys as the cache holds them, ``[batch, seq, 1, size + turned]``."""
        latent, own = (self._by_head(part(x), 1) for part in (self.latent, self.k_rope))
        return ops.concat([latent, _turned(own, turn, location)], 3)

    def _by_head(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape([*x.shape[:2], heads, int(x.shape[2]) // heads])


def _turned(x: Tensor, turn: Turn, location: Location) -> Tensor:
    """Heads as their positions change them."""
    angles = turn.angles
    return x if angles is None else rotated(x, angles, location[0])
