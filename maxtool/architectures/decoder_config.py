"""The options of the decoder: what differs between the models that share it."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.activation_options import ActivationOptions
from maxtool.architectures.attention_options import AttentionOptions
from maxtool.architectures.config import MAX_POSITIONS
from maxtool.architectures.embedding_options import EmbeddingOptions
from maxtool.architectures.expert_options import ExpertOptions
from maxtool.architectures.latent_options import LatentOptions
from maxtool.architectures.layer_embedding_options import LayerEmbeddingOptions
from maxtool.architectures.mixer_options import MixerOptions
from maxtool.architectures.rope_options import RopeOptions
from maxtool.architectures.scale_options import ScaleOptions
from maxtool.architectures.score_options import ScoreOptions
from maxtool.architectures.source_options import SourceOptions
from maxtool.architectures.sparse_options import SparseOptions
from maxtool.architectures.stream_options import StreamOptions


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(
    ExpertOptions,
    MixerOptions,
    SourceOptions,
    LatentOptions,
    SparseOptions,
    AttentionOptions,
    RopeOptions,
    ScaleOptions,
    ActivationOptions,
    LayerEmbeddingOptions,
    StreamOptions,
    EmbeddingOptions,
    ScoreOptions,
):
    """The options of a decoder, in groups that it inherits; ``x`` is the residual stream."""

    norm: str = "rms"  # ``rms``, or ``layer`` for mean and variance
    plain_norms: bool = False  # whether the norms of the residual stream have no weights
    norm_bias: bool = False  # whether layer norms have biases
    # Where a layer has its norms, and what is added to ``x``: ``pre``, ``x += attn(norm(x)); x +=
    # mlp(norm(x))``; ``normed``, ``x = norm(x); x += attn(x); x = norm(x); x += mlp(x)``;
    # ``post``, ``x += norm(attn(x)); x += norm(mlp(x))``; ``after``, ``x = norm(x + attn(x)); x =
    # norm(x + mlp(x))``; ``sandwich``, norms before and after both; ``parallel``, ``x +=
    # attn(norm(x)) + mlp(norm(x))`` with a norm for each, or ``parallel_shared`` with one for
    # both; ``single``, ``x += part(norm(x))``: each layer is attention, what stands in its place,
    # or an MLP.
    block: str = "pre"
    # ``gated``, ``down(act(gate(x)) * up(x))``, or ``plain``, ``down(act(up(x)))``.
    mlp: str = "gated"
    # The activation: a name in ``ACTIVATIONS``, or ``xielu``, which has numbers for each layer.
    hidden_act: str = "silu"
    # The width inside the MLP of each layer; ``intermediate_size`` when None.
    layer_widths: tuple[int, ...] | None = None
    # Whether the projections of the MLP have biases; those of experts have none.
    mlp_bias: bool = False
    # ``cap * tanh(x / cap)`` bounds the logits, after their scale; None for no bound.
    logits_softcap: float | None = None
    # The width of embeddings and of what the head reads, between which and that of ``x`` there is a
    # projection each; None where they are as wide as ``x``.
    embed_size: int | None = None
    embed_norm: bool = False  # whether embeddings are normalised
    final_norm: bool = True  # whether ``x`` is normalised behind the last layer
    embed_scale: float = 1.0  # what embeddings are multiplied by
    residual_scale: float = 1.0  # what each addition to ``x`` is multiplied by
    logits_scale: float = 1.0  # what logits are multiplied by
    lm_head_bias: bool = False  # whether the head has a bias
    tie_word_embeddings: bool = False  # whether the head is the embedding

    def has_mlp(self, layer: int) -> bool:
        """Return whether a layer has an MLP, or experts in its place."""
        return self.block != "single" or self.is_mlp(layer)

    def sparsity(self, layer: int) -> float:
        """Return the share of a layer's gates that are zero."""
        return 0.0 if self.gate_sparsity is None else self.gate_sparsity[layer]

    def width(self, layer: int) -> int:
        """Return the width inside the MLP of a layer."""
        return self.intermediate_size if self.layer_widths is None else self.layer_widths[layer]

    @property
    def max_context(self) -> int:
        """Positions it can be built for: with dynamic scaling, more than it was trained for."""
        if self.rope_scaling != "dynamic" or self.rope_factor is None:
            return self.context_length
        stretched = min(self.original_context * self.rope_factor, MAX_POSITIONS)
        return max(self.context_length, int(stretched))

    @property
    def cached_dim(self) -> int:
        """Elements that a cache has of each token, in each head of keys."""
        if self.latent_size is None:
            return max(self.head_dim, self.value_dim or 0)
        return self.latent_size + self.rotated

    @property
    def rotated_locally(self) -> int:
        """Elements of a head that are rotated in layers with the base of the sliding ones."""
        if self.rotary_local_dim is not None:
            return self.rotary_local_dim
        return self.rotated if self.local_head_dim is None else self.local_head_dim

    def given_by(self, layer: int) -> int | None:
        """Return the layer of which a layer is given what that attended to; None for none."""
        return self.index_source(layer) if self.kv_shared_layers == 0 else self.kv_source(layer)

    def has_qk_norm(self, layer: int) -> bool:
        """Return whether queries and keys of a layer are normalised."""
        return self.qk_norm != "none" and (self.has_rope(layer) or not self.qk_norm_rotated_only)

    def has_temperature(self, layer: int) -> bool:
        """Return whether queries of a layer are scaled by their position."""
        return not (self.temperature_unrotated_only and self.has_rope(layer))

    def is_local(self, layer: int) -> bool:
        """Return whether a layer has the rotary base of the sliding ones."""
        return self.rope_local_theta is not None and self.window(layer) is not None
