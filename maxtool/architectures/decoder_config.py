"""The options of the decoder: what differs between the models that share it."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.config import MAX_POSITIONS


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The options of a decoder. Widths are in elements; ``x`` is the residual stream."""

    vocab_size: int  # rows of the embedding and of the head
    hidden_size: int  # width of the residual stream
    intermediate_size: int  # width inside the MLP
    n_layers: int
    n_heads: int  # query heads
    n_kv_heads: int  # key/value heads, of which ``n_heads`` is a multiple
    head_dim: int  # width of a head
    context_length: int  # positions the model was trained for
    norm_eps: float  # added to the mean of squares, or to the variance, in each norm
    norm: str = "rms"  # ``rms``, or ``layer`` for mean and variance
    norm_bias: bool = False  # whether layer norms have biases
    # Where a layer has its norms, and what is added to ``x``: ``pre``, ``x += attn(norm(x)); x +=
    # mlp(norm(x))``; ``post``, ``x += norm(attn(x)); x += norm(mlp(x))``; ``sandwich``, norms
    # before and after both; ``parallel``, ``x += attn(norm(x)) + mlp(norm(x))`` with a norm for
    # each, or ``parallel_shared`` with one for both.
    block: str = "pre"
    # RMS norms of queries and keys, before positions are applied: ``none``; ``head``, of each head
    # with one weight for all; ``full``, of all heads together.
    qk_norm: str = "none"
    # ``gated``, ``down(act(gate(x)) * up(x))``, or ``plain``, ``down(act(up(x)))``.
    mlp: str = "gated"
    # The activation: ``silu``, ``gelu`` (by the error function), ``gelu_tanh`` (by the hyperbolic
    # tangent) or ``relu``.
    hidden_act: str = "silu"
    qkv_bias: bool = False  # whether the query, key and value projections have biases
    o_bias: bool = False  # whether the attention's output projection has a bias
    # Whether the projections of the MLP have biases; those of experts have none.
    mlp_bias: bool = False
    # ``rope``, or ``learned``: a vector for each position, added to the embedding.
    position: str = "rope"
    # How many elements of a head are rotated, the first ones; None for all.
    rotary_dim: int | None = None
    rope_theta: float = 10000.0  # the base of the rotary frequencies
    # How frequencies are changed for more positions than ``rope_original_context``: ``none``,
    # ``linear``, ``dynamic``, ``llama3``, ``yarn`` or ``longrope``, each as transformers computes
    # it. All but ``none`` use some of the options below.
    rope_scaling: str = "none"
    # How many times more positions. For ``yarn`` and ``longrope``, where it only decides the
    # attention factor in the latter, None is ``context_length / rope_original_context``; the others
    # need it.
    rope_factor: float | None = None
    # Positions before scaling; ``context_length`` when None.
    rope_original_context: int | None = None
    # llama3: longer waves than the original context divided by this are stretched by
    # ``rope_factor``.
    rope_low_freq_factor: float = 1.0
    # llama3: shorter waves than the original context divided by this stay.
    rope_high_freq_factor: float = 4.0
    # yarn: rotations over the original context from which on a frequency stays.
    rope_beta_fast: float = 32.0
    rope_beta_slow: float = 1.0  # yarn: rotations up to which it is divided by ``rope_factor``
    # yarn, longrope: what cosines and sines are multiplied by; None for what the scaling itself
    # suggests.
    rope_attention_factor: float | None = None
    # yarn: with the next one, scales the suggested attention factor.
    rope_mscale: float | None = None
    rope_mscale_all_dim: float | None = None  # yarn: see there
    # yarn: whether the range of dimensions between the two betas is rounded to whole ones.
    rope_truncate: bool = True
    # longrope: divisors of the frequencies, ``rotary_dim / 2`` of them, while a sequence is no
    # longer than the original context.
    rope_short_factors: tuple[float, ...] | None = None
    rope_long_factors: tuple[float, ...] | None = None  # longrope: likewise, for longer sequences
    rope_layers: tuple[bool, ...] | None = None  # which layers have rotary positions; all when None
    # The base of the sliding layers, whose frequencies are not scaled; None when they are like the
    # others.
    rope_local_theta: float | None = None
    # How many keys a query sees at most, its own included; None for all.
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] | None = None  # which layers have that window; all when None
    # What scores are multiplied by; ``head_dim ** -0.5`` when None.
    attention_scale: float | None = None
    # ``cap * tanh(score / cap)`` bounds the scores; None for no bound.
    attention_softcap: float | None = None
    logits_softcap: float | None = None  # likewise for the logits, after their scale
    embed_scale: float = 1.0  # what embeddings are multiplied by
    residual_scale: float = 1.0  # what each addition to ``x`` is multiplied by
    logits_scale: float = 1.0  # what logits are multiplied by
    n_experts: int | None = None  # how many experts take the place of the MLP; None for no experts
    n_experts_used: int | None = None  # how many of them each token goes through
    expert_size: int | None = None  # width inside an expert; ``intermediate_size`` when None
    norm_topk: bool = True  # whether the weights of the experts that are used add up to 1
    expert_layers: tuple[bool, ...] | None = None  # which layers have experts; all when None
    tie_word_embeddings: bool = False  # whether the head is the embedding

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
