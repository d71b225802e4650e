"""One layer of a decoder: attention and MLP on the residual stream, and where the norms are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.cross_attention import CrossAttention
from maxtool.architectures.decoder_attention import Attention
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.delta_net import DeltaNet
from maxtool.architectures.latent_attention import LatentAttention
from maxtool.architectures.layer_state import CachedModule, LayerState, Mixer
from maxtool.architectures.mamba import Mamba
from maxtool.architectures.mixture_of_experts import MixtureOfExperts
from maxtool.architectures.mlp import MLPS, PlainMLP
from maxtool.architectures.normalization import Norm, stream_norm
from maxtool.architectures.rotary_angles import Turn
from maxtool.architectures.short_convolution import ShortConvolution
from maxtool.dtype import DType
from maxtool.graph import Tensor

# The norms of each form of block.
NORMS: dict[str, tuple[str, ...]] = {
    "pre": ("attn_norm", "mlp_norm"),
    "post": ("attn_post_norm", "mlp_post_norm"),
    "after": ("attn_norm", "mlp_norm"),
    "sandwich": ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm"),
    "parallel": ("attn_norm", "mlp_norm"),
    "parallel_shared": ("attn_norm",),
}
# What a layer without attention has in its place, by the name of its options and of its part.
MIXERS: dict[str, tuple[str, Callable[[DecoderConfig, DType, CacheLayout], Mixer]]] = {
    "convolution": ("conv", ShortConvolution),
    "delta": ("delta", DeltaNet),
    "mamba": ("mamba", Mamba),
}
PARALLEL = ("parallel", "parallel_shared")


class DecoderLayer(CachedModule):
    """Attention and MLP, one after the other or side by side, each added to the residual stream.

    What stands in the place of attention, if anything does, has its norms. A norm that the form of
    block has not is None, and changes nothing.
    """

    def __init__(
        self, config: DecoderConfig, index: int, dtype: DType, form: CacheLayout, context: int
    ) -> None:
        def norm(name: str) -> Norm | None:
            if name not in NORMS[config.block]:
                return None
            return stream_norm(config)

        self.attn_norm = norm("attn_norm")
        if config.has_attention(index):
            self._mixer = "attn"
            attention = Attention if config.latent_size is None else LatentAttention
            self.attn = attention(config, config.window(index), dtype, form, context)
        else:
            self._mixer, make = MIXERS[config.mixer]
            setattr(self, self._mixer, make(config, dtype, form))
        self.attn_post_norm = norm("attn_post_norm")
        self.cross = self.cross_norm = None
        if config.source_positions is not None:
            self.cross = CrossAttention(config, config.source_positions, dtype, form)
            self.cross_norm = stream_norm(config)
        self.mlp_norm = norm("mlp_norm")
        self.mlp = _make_mlp(config, index, dtype)
        self.mlp_post_norm = norm("mlp_post_norm")
        self.block = config.block
        self.residual_scale = config.residual_scale

    @property
    def mixer(self) -> Mixer:
        """The part through which tokens know of those before them."""
        part: Mixer = getattr(self, self._mixer)
        return part

    def state(self) -> LayerState:
        """The buffers of a text, and those of the source where there is one."""
        state = self.mixer.state()
        return state if self.cross is None else replace(state, source=self.cross.buffers)

    def set_form(self, form: CacheLayout) -> None:
        """Change how what it keeps lies in memory."""
        self.mixer.form = form
        if self.cross is not None:
            self.cross.form = form

    def forward(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """Map ``[batch, seq, hidden]`` to the same shape; returns the updated cache too."""
        if self.block == "after":
            return self._normed_after(x, turn, location, cache)
        first = _normed(self.attn_norm, x)
        own, source = self._apart(cache)
        mixed, own = self.mixer(first, turn, location, own)
        after = self._added(x, _normed(self.attn_post_norm, mixed))
        if self.cross is not None:
            after = self._added(after, self.cross(_normed(self.cross_norm, after), source))
        if self.block not in PARALLEL:
            second = _normed(self.mlp_norm, after)
        else:
            second = first if self.mlp_norm is None else self.mlp_norm(x)
        return self._added(after, _normed(self.mlp_post_norm, self.mlp(second))), own

    def read(self, source: Tensor, cache: Cache) -> None:
        """Write the keys and values of a source into the cache."""
        if self.cross is not None:
            self.cross.read(source, self._apart(cache)[1])

    def _apart(self, cache: Cache | None) -> tuple[Cache | None, Cache]:
        """The buffers of the text, and those of the source."""
        count = len(self.mixer.state().buffers)
        return (None, ()) if cache is None else (cache[:count], cache[count:])

    def _normed_after(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """The layer with a norm behind each sum, as the first Transformer had them."""
        mixed, cache = self.mixer(x, turn, location, cache)
        x = _normed(self.attn_norm, self._added(x, mixed))
        return _normed(self.mlp_norm, self._added(x, self.mlp(x))), cache

    def _added(self, x: Tensor, more: Tensor) -> Tensor:
        return x + (more if self.residual_scale == 1 else more * self.residual_scale)


def _make_mlp(config: DecoderConfig, index: int, dtype: DType) -> PlainMLP | MixtureOfExperts:
    if config.has_experts(index):
        return MixtureOfExperts(config, dtype)
    widths = (config.hidden_size, config.intermediate_size)
    inner_eps = config.norm_eps if config.sub_norms else None
    return MLPS[config.mlp](*widths, config.hidden_act, dtype, config.mlp_bias, inner_eps)


def _normed(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)
