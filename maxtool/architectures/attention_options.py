"""Options of attention, but for positions."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes, chosen


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(DecoderSizes):
    """Options of queries, keys, values and scores."""

    # Norms of queries and keys: ``none``; ``head``, of each head with one weight for all;
    # ``each_head``, of each head with its own weight; ``plain``, of each head without a weight;
    # ``full``, of all heads together.
    qk_norm: str = "none"
    qk_norm_type: str = "rms"  # ``rms``, or ``layer`` for mean and variance
    qk_norm_bias: bool = False  # whether those norms have biases, if they are layer norms
    qk_norm_after_rope: bool = False  # whether they follow the rotation by positions
    # Whether layers without rotary positions have none of those norms.
    qk_norm_rotated_only: bool = False
    # Queries, keys and values are held between this and its negative, before heads are normalised;
    # None for no bound.
    qkv_clip: float | None = None
    # Whether the query, key and value projections have biases; those to latents, where these are.
    qkv_bias: bool = False
    k_bias: bool = True  # whether keys have biases where queries and values do
    o_bias: bool = False  # whether the attention's output projection has a bias
    # How many keys a query sees at most, its own included; None for all.
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] | None = None  # which layers have that window; all when None
    # Whether the window is a chunk: positions are cut into runs of ``sliding_window``, and a query
    # sees the keys of its own run up to its own (Llama 4's chunked attention).
    chunked_window: bool = False
    # What scores are multiplied by; ``head_dim ** -0.5`` when None.
    attention_scale: float | None = None
    # ``cap * tanh(score / cap)`` bounds the scores; None for no bound.
    attention_softcap: float | None = None

    # With the next one, what queries are multiplied by, by their position: ``1 + temperature *
    # log(1 + floor((position + temperature_offset) / temperature_context))`` (Llama 4's scaling of
    # attention).
    temperature: float | None = None
    temperature_context: int | None = None  # positions
    temperature_offset: int = 0  # positions
    # Whether the layers without rotary positions alone have that scaling.
    temperature_unrotated_only: bool = False
    # Whether each head has one more key, of a score that is a parameter and a value of zero, which
    # all queries see (gpt-oss's sinks).
    attention_sinks: bool = False
    # Whether what heads give is multiplied by the sigmoid of a projection of the layer's input.
    attention_gate: bool = False
    attention_gate_bias: bool = False  # whether that projection has a bias
    # Whether what heads give is normalised (RMS, all heads together) before the output projection,
    # and what is inside an MLP before its last one (BitNet's).
    sub_norms: bool = False

    @property
    def score_scale(self) -> float:
        """The number that scores are multiplied by."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    def window(self, layer: int) -> int | None:
        """Return the number of keys a query of a layer sees at most; None for all."""
        return self.sliding_window if chosen(self.sliding_layers, layer) else None
