"""The options of the decoder: what differs between the models that share it."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.config import MAX_POSITIONS


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The options of a decoder. Widths are in elements; ``x`` is the residual stream.

    Attributes:
        vocab_size: Rows of the embedding and of the head.
        hidden_size: Width of the residual stream.
        intermediate_size: Width inside the MLP.
        n_layers: How many layers there are.
        n_heads: Query heads.
        n_kv_heads: Key/value heads, of which ``n_heads`` is a multiple.
        head_dim: Width of a head.
        context_length: Positions the model was trained for.
        norm_eps: Added to the mean of squares, or to the variance, in each norm.
        norm: ``rms``, or ``layer`` for mean and variance.
        norm_bias: Whether layer norms have biases.
        block: Where a layer has its norms, and what is added to ``x``: ``pre``,
            ``x += attn(norm(x)); x += mlp(norm(x))``; ``post``, ``x += norm(attn(x));
            x += norm(mlp(x))``; ``sandwich``, norms before and after both; ``parallel``,
            ``x += attn(norm(x)) + mlp(norm(x))`` with a norm for each, or ``parallel_shared`` with
            one for both.
        qk_norm: RMS norms of queries and keys, before positions are applied: ``none``; ``head``,
            of each head with one weight for all; ``full``, of all heads together.
        mlp: ``gated``, ``down(act(gate(x)) * up(x))``, or ``plain``, ``down(act(up(x)))``.
        hidden_act: The activation: ``silu``, ``gelu`` (by the error function), ``gelu_tanh`` (by
            the hyperbolic tangent) or ``relu``.
        qkv_bias: Whether the query, key and value projections have biases.
        o_bias: Whether the attention's output projection has a bias.
        mlp_bias: Whether the projections of the MLP have biases; those of experts have none.
        position: ``rope``, or ``learned``: a vector for each position, added to the embedding.
        rotary_dim: How many elements of a head are rotated, the first ones; None for all.
        rope_theta: The base of the rotary frequencies.
        rope_scaling: How frequencies are changed for more positions than ``rope_original_context``:
            ``none``, ``linear``, ``dynamic``, ``llama3``, ``yarn`` or ``longrope``, each as
            transformers computes it. All but ``none`` use some of the options below.
        rope_factor: How many times more positions. For ``yarn`` and ``longrope``, where it only
            decides the attention factor in the latter, None is
            ``context_length / rope_original_context``; the others need it.
        rope_original_context: Positions before scaling; ``context_length`` when None.
        rope_low_freq_factor: llama3: longer waves than the original context divided by this are
            stretched by ``rope_factor``.
        rope_high_freq_factor: llama3: shorter waves than the original context divided by this stay.
        rope_beta_fast: yarn: rotations over the original context from which on a frequency stays.
        rope_beta_slow: yarn: rotations up to which it is divided by ``rope_factor``.
        rope_attention_factor: yarn, longrope: what cosines and sines are multiplied by; None for
            what the scaling itself suggests.
        rope_mscale: yarn: with the next one, scales the suggested attention factor.
        rope_mscale_all_dim: yarn: see there.
        rope_truncate: yarn: whether the range of dimensions between the two betas is rounded to
            whole ones.
        rope_short_factors: longrope: divisors of the frequencies, ``rotary_dim / 2`` of them, while
            a sequence is no longer than the original context.
        rope_long_factors: longrope: likewise, for longer sequences.
        rope_layers: Which layers have rotary positions; all when None.
        rope_local_theta: The base of the sliding layers, whose frequencies are not scaled; None
            when they are like the others.
        sliding_window: How many keys a query sees at most, its own included; None for all.
        sliding_layers: Which layers have that window; all when None.
        attention_scale: What scores are multiplied by; ``head_dim ** -0.5`` when None.
        attention_softcap: ``cap * tanh(score / cap)`` bounds the scores; None for no bound.
        logits_softcap: Likewise for the logits, after their scale.
        embed_scale: What embeddings are multiplied by.
        residual_scale: What each addition to ``x`` is multiplied by.
        logits_scale: What logits are multiplied by.
        n_experts: How many experts take the place of the MLP; None for no experts.
        n_experts_used: How many of them each token goes through.
        expert_size: Width inside an expert; ``intermediate_size`` when None.
        norm_topk: Whether the weights of the experts that are used add up to 1.
        expert_layers: Which layers have experts; all when None.
        tie_word_embeddings: Whether the head is the embedding.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    norm: str = "rms"
    norm_bias: bool = False
    block: str = "pre"
    qk_norm: str = "none"
    mlp: str = "gated"
    hidden_act: str = "silu"
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    position: str = "rope"
    rotary_dim: int | None = None
    rope_theta: float = 10000.0
    rope_scaling: str = "none"
    rope_factor: float | None = None
    rope_original_context: int | None = None
    rope_low_freq_factor: float = 1.0
    rope_high_freq_factor: float = 4.0
    rope_beta_fast: float = 32.0
    rope_beta_slow: float = 1.0
    rope_attention_factor: float | None = None
    rope_mscale: float | None = None
    rope_mscale_all_dim: float | None = None
    rope_truncate: bool = True
    rope_short_factors: tuple[float, ...] | None = None
    rope_long_factors: tuple[float, ...] | None = None
    rope_layers: tuple[bool, ...] | None = None
    rope_local_theta: float | None = None
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] | None = None
    attention_scale: float | None = None
    attention_softcap: float | None = None
    logits_softcap: float | None = None
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0
    n_experts: int | None = None
    n_experts_used: int | None = None
    expert_size: int | None = None
    norm_topk: bool = True
    expert_layers: tuple[bool, ...] | None = None
    tie_word_embeddings: bool = False

    @property
    def rotated(self) -> int:
        """Elements of a head that are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def original_context(self) -> int:
        """Positions before the rotary frequencies were scaled."""
        return self.rope_original_context or self.context_length

    @property
    def max_context(self) -> int:
        """Positions it can be built for: with dynamic scaling, more than it was trained for."""
        if self.rope_scaling != "dynamic" or self.rope_factor is None:
            return self.context_length
        stretched = min(self.original_context * self.rope_factor, MAX_POSITIONS)
        return max(self.context_length, int(stretched))

    def has_rope(self, layer: int) -> bool:
        """Return whether a layer has rotary positions."""
        return self.position == "rope" and _chosen(self.rope_layers, layer)

    def window(self, layer: int) -> int | None:
        """Return the number of keys a query of a layer sees at most; None for all."""
        return self.sliding_window if _chosen(self.sliding_layers, layer) else None

    def is_local(self, layer: int) -> bool:
        """Return whether a layer has the rotary base of the sliding ones."""
        return self.rope_local_theta is not None and self.window(layer) is not None

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer has experts in the place of its MLP."""
        return self.n_experts is not None and _chosen(self.expert_layers, layer)


def _chosen(layers: tuple[bool, ...] | None, layer: int) -> bool:
    return layers is None or layers[layer]
