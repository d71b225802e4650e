"""Grouped-query attention over a cache."""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.layer_state import CachedModule, LayerState
from maxtool.architectures.linear_biases import EXTRA, biased, slopes
from maxtool.architectures.mlp import scaled
from maxtool.architectures.normalization import PlainNorm, applied, head_norm
from maxtool.architectures.rotary_angles import Turn, rotated
from maxtool.architectures.sliding_cache import Seen, attended_parts, place_among
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import Linear, RMSNorm, parallel, tensor_parallel
from maxtool.nn.tensor_parallel import Role

GATES = {"sigmoid": ops.sigmoid, "softplus": ops.softplus}


class Attention(CachedModule):
    """Attention in which each head of keys serves several heads of queries.

    A query sees the keys that the options of its layer say. The cache has room for ``context``
    positions, or for the layer's window alone where its form slides.
    """

    def __init__(
        self, config: DecoderConfig, layer: int, dtype: DType, form: CacheLayout, context: int
    ) -> None:
        hidden, dim, heads = config.hidden_size, config.head_width(layer), config.heads(layer)
        value_dim = config.value_width(layer)
        kv_heads, inner = config.kv_heads(layer), heads * value_dim
        self.keeps = config.kv_source(layer) is None
        self.q = Linear(hidden, heads * dim, dtype, has_bias=config.qkv_bias)
        self.k = self.v = None
        if self.keeps:
            has_bias = config.qkv_bias and config.k_bias
            self.k = Linear(hidden, kv_heads * dim, dtype, has_bias=has_bias)
        if self.keeps and config.has_values(layer):
            self.v = Linear(hidden, kv_heads * value_dim, dtype, has_bias=config.qkv_bias)
        self.o = Linear(inner, hidden, dtype, has_bias=config.o_bias)
        self.q.role, self.o.role = Role.OUTPUTS, Role.INPUTS
        for each in (self.k, self.v):
            if each is not None and kv_heads > 1:  # one serves the queries of every device
                each.role = Role.OUTPUTS
        self.norm_at = _place_of_norms(config, layer)
        if self.norm_at is not None:
            self.q_norm = head_norm(config, heads, dim)
            self.k_norm = head_norm(config, kv_heads, dim) if self.keeps else None
        self.v_norm = PlainNorm("rms", value_dim, config.norm_eps) if config.value_norm else None
        self.gate, self.gate_act = None, GATES[config.attention_gate_act]
        if config.attention_gate:
            gates = heads if config.attention_gate_by_head else inner
            self.gate = Linear(hidden, gates, dtype, has_bias=config.attention_gate_bias)
            self.gate.role = Role.OUTPUTS
        self.norm = RMSNorm(inner, config.norm_eps) if config.sub_norms else None
        self.sinks = Weight("sinks", DType.float32, (heads,)) if config.has_sinks(layer) else None
        has_biases = config.position == "alibi"
        self.slopes = slopes(heads) if has_biases else None
        self.clip, self.key_scale = config.qkv_clip, config.key_scale
        self.value_scale = config.value_scale
        self.head_dim, self.value_dim = dim, value_dim
        self.window, self.chunked = config.window(layer), config.chunked_window
        self.room = form.room(self.window, context)
        self.slides, self.n_kv_heads = self.room < context, kv_heads
        self.form = form
        self.softcap = config.attention_softcap
        self.scale = dim**-0.5 if config.attention_scale is None else config.attention_scale

    def state(self) -> LayerState:
        """The keys and values, and their scales; nothing where they are another layer's."""
        if not self.keeps:
            return LayerState({})
        device = tensor_parallel.one()
        heads = max(1, self.n_kv_heads // (device.count if device else 1))
        dim = max(self.head_dim, self.value_dim) + (0 if self.slopes is None else EXTRA)
        buffers = self.form.buffers(heads, dim, self.room)
        return LayerState(buffers, self.form.positions, self.room)

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
        """The same, over keys and values that are ``given`` where there are none of its own.

        Returns what was attended to, and the updated cache.
        """
        (query, *keys), value = self._projected(x)
        query, *keys = self._turned((query, *keys), turn, location)
        width = int(query.shape[2]) * self.value_dim
        if turn.mask is not None and value is not None:
            mixed = self._masked(query, keys[0], value, turn.mask)
            return self._out(x, mixed, width), (), cache
        window = self.window if self.slides else None
        query = self._padded(query)
        if value is not None:
            key, value = self._padded(keys[0]), self._padded(value)
            if self.slopes is not None:
                heads = query, key, value
                query, key, value = biased(heads, location[0], self.slopes, self.scale)
            new = self.form.parts(key, value)
            seen = attended_parts(self.form, new, location, cache, window, chunked=self.chunked)
        else:
            room = None if cache is None else window
            place = place_among(location, x.shape[1], room, chunked=self.chunked)
            seen = Seen(given, place, cache)
        mixed = self._mixed(query, seen, turn.biases)
        if int(mixed.shape[3]) != self.value_dim:
            mixed = mixed[..., : self.value_dim]
        return self._out(x, mixed, width), seen.parts, seen.cache

    def _masked(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attention of ``[batch, seq, heads, head_dim]`` to the tokens that a mask shows."""
        query, key, value = (heads.permute([0, 2, 1, 3]) for heads in (query, key, value))
        mixed = ops.scaled_dot_product_attention(query, key, value, mask, scale=self.scale)
        return mixed.permute([0, 2, 1, 3])

    def _out(self, x: Tensor, mixed: Tensor, width: int) -> Tensor:
        """The output for what heads give, of a layer's input ``x``."""
        if self.gate is not None:
            gate = self.gate_act(self.gate(x))
            count = int(mixed.shape[2])
            mixed = mixed * gate.reshape([*x.shape[:2], count, int(gate.shape[2]) // count])
        joined = mixed.reshape([*x.shape[:2], width])
        return self.o(joined if self.norm is None else self.norm(joined))

    def _mixed(self, query: Tensor, seen: Seen, biases: Tensor | None) -> Tensor:
        """Attention of queries ``[batch, seq, heads, head_dim]``; biases hide later keys."""
        if biases is not None:
            return self.form.attention_to_all(query, seen.parts, biases, scale=self.scale)
        return self.form.attention(
            query,
            seen.parts,
            seen.location,
            scale=self.scale,
            window=self.window,
            chunked=self.chunked,
            softcap=self.softcap,
            sinks=None if self.sinks is None else parallel.local(self.sinks, query.device),
        )

    def _projected(self, x: Tensor) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Queries and keys by head, normalised if that is asked for, and values."""
        heads: tuple[Tensor, ...] = (self.q(x),)
        value = None
        if self.k is not None:
            key = self.k(x)
            heads = *heads, scaled(key, self.key_scale)
            value = scaled(key if self.v is None else self.v(x), self.value_scale)
        heads = self._normed("full", heads)
        if (clip := self.clip) is not None:
            heads = tuple(ops.clamp(each, -clip, clip) for each in heads)
            value = None if value is None else ops.clamp(value, -clip, clip)
        heads = tuple(_by_head(each, self.head_dim) for each in heads)
        if value is not None:
            value = applied(self.v_norm, _by_head(value, self.value_dim))
        return self._normed("heads", heads), value

    def _turned(
        self, heads: tuple[Tensor, ...], turn: Turn, location: Location
    ) -> tuple[Tensor, ...]:
        """Queries and keys as their positions change them."""
        angles, factor = turn.angles, turn.factor
        if angles is not None:
            heads = tuple(rotated(each, angles, location[0]) for each in heads)
        query, *keys = self._normed("turned", heads)
        return (query if factor is None else query * factor), *keys

    def _normed(self, place: str, heads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Queries and keys, normalised if this is where that is done."""
        if place != self.norm_at:
            return heads
        norms = self.q_norm, self.k_norm
        return tuple(applied(norm, each) for norm, each in zip(norms, heads, strict=False))

    def _padded(self, x: Tensor) -> Tensor:
        """Heads with zeros behind them, as wide as those of keys and those of values are.

        A zero adds nothing to a score, and nothing looks at what a value of zero is mixed to.
        """
        missing = max(self.head_dim, self.value_dim) - int(x.shape[3])
        return x if missing == 0 else ops.pad(x, [0] * 7 + [missing])


def _by_head(x: Tensor, dim: int) -> Tensor:
    return x.reshape([*x.shape[:2], int(x.shape[2]) // dim, dim])


def _place_of_norms(config: DecoderConfig, layer: int) -> str | None:
    """Name where queries and keys are normalised: all of them, by head, or behind the rotation."""
    if not config.has_qk_norm(layer):
        return None
    by_head = "turned" if config.qk_norm_after_rope else "heads"
    return "full" if config.qk_norm == "full" else by_head
