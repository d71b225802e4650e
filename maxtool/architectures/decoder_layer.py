"""One layer of a decoder: attention and MLP on the residual stream, and where the norms are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, reduce
from itertools import islice
from operator import add
from typing import NamedTuple, TypeAlias

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.cross_attention import CrossAttention
from maxtool.architectures.decoder_attention import Attention
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.delta_net import DeltaNet
from maxtool.architectures.latent_attention import LatentAttention
from maxtool.architectures.layer_embeddings import LayerInput
from maxtool.architectures.layer_state import LayerState, Mixer, beside
from maxtool.architectures.learned_residual import LearnedResidual
from maxtool.architectures.mamba import Mamba
from maxtool.architectures.mixture_of_experts import MixtureOfExperts
from maxtool.architectures.mlp import MLPS, GatedMLP, PlainMLP, scaled
from maxtool.architectures.normalization import Norm, applied, stream_norm
from maxtool.architectures.rotary_angles import Turn
from maxtool.architectures.selective_space import SelectiveSpace
from maxtool.architectures.short_convolution import ShortConvolution
from maxtool.architectures.xielu import Numbers
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight
from maxtool.nn import Module, parallel

# The norms of each form of block.
NORMS: dict[str, tuple[str, ...]] = {
    "pre": ("attn_norm", "mlp_norm"),
    "normed": ("attn_norm", "mlp_norm"),
    "post": ("attn_post_norm", "mlp_post_norm"),
    "after": ("attn_norm", "mlp_norm"),
    "sandwich": ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm"),
    "parallel": ("attn_norm", "mlp_norm"),
    "parallel_shared": ("attn_norm",),
    "single": ("norm",),
}
# What a layer without attention has in its place, by the name of its options and of its part.
MIXERS: dict[str, tuple[str, Callable[[DecoderConfig, DType, CacheLayout], Mixer]]] = {
    "convolution": ("conv", ShortConvolution),
    "delta": ("delta", DeltaNet),
    "mamba": ("mamba", Mamba),
    "selective": ("selective", SelectiveSpace),
}
PARALLEL = ("parallel", "parallel_shared")
# The name of a part, and what its input and its result are multiplied by.
Scaled: TypeAlias = tuple[str, float, float]


class Given(NamedTuple):
    """Parts of the model that a layer is given.

    Attributes:
        vectors: Those that tokens have for it, ``[batch, seq, size]``.
        shared: Keys and values of an earlier layer, or its choice of keys, where it has none of its
            own.
        numbers: Those of an activation that has some for each layer.
        source_length: How many positions the source has, where that may be fewer than all.
    """

    vectors: Tensor | None = None
    shared: Cache = ()
    numbers: Numbers | None = None
    source_length: Tensor | None = None


LayerModule: TypeAlias = Module[
    [Tensor, Turn, Location, Cache | None, Given], tuple[Tensor, Cache | None, Cache]
]


class DecoderLayer(LayerModule):
    """Attention and MLP, one after the other or side by side, each added to the residual stream.

    What stands in the place of attention, if anything does, has its norms, and so has what stands
    beside it. A norm that the form of block has not is None, and changes nothing.
    """

    def __init__(
        self, config: DecoderConfig, index: int, dtype: DType, form: CacheLayout, context: int
    ) -> None:
        def norm(name: str) -> Norm | None:
            if name not in NORMS[config.block]:
                return None
            return stream_norm(config)

        self.norm = norm("norm")
        self.attn_norm = norm("attn_norm")
        self._mixers: tuple[Scaled, ...] = ()
        self.shares = config.shares_keys(index) or config.shares_index(index)
        if config.has_attention(index) and not config.is_mlp(index):
            self._mixers += (("attn", config.attention_in_scale, config.attention_out_scale),)
            attention = Attention if config.latent_size is None else LatentAttention
            self.attn: Attention | LatentAttention = attention(config, index, dtype, form, context)
        if config.has_mixer(index):
            name, make = MIXERS[config.mixer]
            self._mixers += ((name, config.mixer_in_scale, config.mixer_out_scale),)
            setattr(self, name, make(config, dtype, form))
        self.attn_post_norm = norm("attn_post_norm")
        rank = config.laurel_rank
        self.laurel = None if rank is None else LearnedResidual(config, rank, dtype)
        self.cross = self.cross_norm = None
        if config.source_positions is not None:
            self.cross = CrossAttention(config, config.source_positions, dtype, form)
            self.cross_norm = stream_norm(config)
        self.mlp_norm = norm("mlp_norm")
        self.has_mlp = config.has_mlp(index)
        if self.has_mlp:
            self.mlp = _make_mlp(config, index, dtype)
        self.experts = None
        if config.experts_beside and config.has_experts(index):
            self.experts = MixtureOfExperts(config, dtype)
            self.plain_post_norm, self.expert_post_norm = (stream_norm(config) for _ in range(2))
        self.mlp_scale = (config.mlp_scales or (1.0, 1.0))[1]
        self.mlp_post_norm = norm("mlp_post_norm")
        width = config.layer_embed_size
        self.input = None if width is None else LayerInput(config, width, dtype)
        self.scale = Weight("scale", DType.float32, (1,)) if config.layer_scale else None
        self.block = config.block
        self.residual_scale = config.residual_scale

    @property
    def mixers(self) -> Mapping[str, Mixer]:
        """The parts through which tokens know of those before them, by name; mostly one."""
        return {name: getattr(self, name) for name, *_ in self._mixers}

    def state(self) -> LayerState:
        """The buffers of a text, and those of the source where there is one."""
        state = beside({name: mixer.state() for name, mixer in self.mixers.items()})
        return state if self.cross is None else replace(state, source=self.cross.buffers)

    def set_form(self, form: CacheLayout) -> None:
        """Change how what it keeps lies in memory."""
        for mixer in self.mixers.values():
            mixer.form = form
        if self.cross is not None:
            self.cross.form = form

    def forward(
        self,
        x: Tensor,
        turn: Turn,
        location: Location,
        cache: Cache | None,
        given: Given,
    ) -> tuple[Tensor, Cache | None, Cache]:
        """Map ``[batch, seq, hidden]`` to the same shape.

        Returns the updated cache too, and what layers are given that have none of their own.
        """
        if self.block == "single":
            return *self._single(x, turn, location, cache, given), ()
        if self.block == "after":
            return *self._normed_after(x, turn, location, cache, given), ()
        first = applied(self.attn_norm, x)
        own, source = self._apart(cache)
        seen: Cache = ()
        if self.shares:
            mixed, seen, own = self.attn.attend(first, turn, location, own, given.shared)
        else:
            mixed, own = self._mixed(first, turn, location, own)
        is_normed = self.block == "normed"
        after = self._added(first if is_normed else x, applied(self.attn_post_norm, mixed))
        if self.laurel is not None:
            after = scaled(after + self.laurel(first), 0.5**0.5)
        if self.cross is not None:
            found = self.cross(applied(self.cross_norm, after), source, given.source_length)
            after = self._added(after, found)
        if self.block not in PARALLEL:
            second = applied(self.mlp_norm, after)
        else:
            second = first if self.mlp_norm is None else self.mlp_norm(x)
        made = self._widened(second, given.numbers)
        if self.experts is not None:
            of_experts = self.expert_post_norm(self.experts(after))
            made = self.plain_post_norm(made) + of_experts
        stream = second if is_normed else after
        added = self._added(stream, applied(self.mlp_post_norm, made))
        return self._closed(added, given), own, seen

    def _closed(self, x: Tensor, given: Given) -> Tensor:
        """The residual stream with what the layer has for each token, and times its scale."""
        if self.input is not None and given.vectors is not None:
            x = x + self.input(x, given.vectors)
        return x if self.scale is None else x * parallel.local(self.scale, x.device)

    def read(self, source: Tensor, cache: Cache) -> None:
        """Write the keys and values of a source into the cache."""
        if self.cross is not None:
            self.cross.read(source, self._apart(cache)[1])

    def _apart(self, cache: Cache | None) -> tuple[Cache | None, Cache]:
        """The buffers of the text, and those of the source."""
        count = len(self.state().buffers)
        return (None, ()) if cache is None else (cache[:count], cache[count:])

    def _mixed(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """The sum of what the mixers make of ``x``, and their buffers, one's after the other's."""
        made: list[Tensor] = []
        kept: list[Tensor] = []
        rest = iter(cache or ())
        for name, before, after in self._mixers:
            mixer = self.mixers[name]
            own = tuple(islice(rest, len(mixer.state().buffers))) if cache is not None else None
            mixed, own = mixer(scaled(x, before), turn, location, own)
            made.append(scaled(mixed, after))
            kept += own or ()
        return reduce(add, made), None if cache is None else tuple(kept)

    def _widened(self, x: Tensor, numbers: Numbers | None) -> Tensor:
        """The result of the MLP."""
        mlp = self.mlp
        made = mlp(x, numbers) if isinstance(mlp, PlainMLP) else mlp(x)
        return scaled(made, self.mlp_scale)

    def _single(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None, given: Given
    ) -> tuple[Tensor, Cache | None]:
        """The layer of one part."""
        first = applied(self.norm, x)
        if self.has_mlp:
            return self._added(x, self._widened(first, given.numbers)), cache
        mixed, cache = self._mixed(first, turn, location, cache)
        return self._added(x, mixed), cache

    def _normed_after(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None, given: Given
    ) -> tuple[Tensor, Cache | None]:
        """The layer with a norm behind each sum, as the first Transformer had them."""
        own, source = self._apart(cache)
        mixed, own = self._mixed(x, turn, location, own)
        x = applied(self.attn_norm, self._added(x, mixed))
        if self.cross is not None:
            seen = self.cross(x, source, given.source_length)
            x = applied(self.cross_norm, self._added(x, seen))
        return applied(self.mlp_norm, self._added(x, self._widened(x, given.numbers))), own

    def _added(self, x: Tensor, more: Tensor) -> Tensor:
        return x + scaled(more, self.residual_scale)


def _make_mlp(config: DecoderConfig, index: int, dtype: DType) -> PlainMLP | MixtureOfExperts:
    if config.has_experts(index) and not config.experts_beside:
        return MixtureOfExperts(config, dtype)
    widths = (config.hidden_size, config.width(index))
    inner_eps = config.norm_eps if config.sub_norms else None
    make: Callable[..., PlainMLP] = MLPS[config.mlp]
    if config.mlp == "gated":
        scale = (config.mlp_scales or (1.0, 1.0))[0]
        make = partial(GatedMLP, gate_scale=scale, sparsity=config.sparsity(index))
    return make(*widths, config.hidden_act, dtype, config.mlp_bias, inner_eps)
