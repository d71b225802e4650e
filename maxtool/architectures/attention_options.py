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
    sink_layers: tuple[bool, ...] | None = None  # which layers have them; all when None
    # How many heads of queries each layer has; ``n_heads`` when None.
    layer_heads: tuple[int, ...] | None = None
    # Whether what heads give is multiplied by gates: an activation, ``sigmoid`` or ``softplus``, of
    # a projection of the layer's input, which has a number for each element, or for each head.
    attention_gate: bool = False
    attention_gate_act: str = "sigmoid"
    attention_gate_by_head: bool = False
    attention_gate_bias: bool = False  # whether that projection has a bias
    # Whether what heads give is normalised (RMS, all heads together) before the output projection,
    # and what is inside an MLP before its last one (BitNet's).
    sub_norms: bool = False
    # The width of a head, and how many heads of keys there are, in layers with a window; as in
    # others when None.
    local_head_dim: int | None = None
    local_kv_heads: int | None = None
    value_dim: int | None = None  # the width of a head of values; ``head_dim`` when None
    # Whether each head of values is normalised (RMS, without a weight).
    value_norm: bool = False
    # Which layers have a projection of values; all when None. Values of others are what keys are
    # before these are normalised and rotated.
    value_layers: tuple[bool, ...] | None = None
    # How many of the last layers attend to keys and values of an earlier one, the last before them
    # of the same kind, with a window or without, and have none of their own.
    kv_shared_layers: int = 0

    @property
    def score_scale(self) -> float:
        """The number that scores are multiplied by."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    def has_values(self, layer: int) -> bool:
        """Return whether a layer has a projection of values."""
        return chosen(self.value_layers, layer)

    def head_width(self, layer: int) -> int:
        """Return the width of a layer's heads."""
        own = self.local_head_dim if self.window(layer) is not None else None
        return self.head_dim if own is None else own

    def value_width(self, layer: int) -> int:
        """Return the width of a layer's heads of values."""
        return self.head_width(layer) if self.value_dim is None else self.value_dim

    def has_sinks(self, layer: int) -> bool:
        """Return whether heads of a layer have one more key."""
        return self.attention_sinks and chosen(self.sink_layers, layer)

    def heads(self, layer: int) -> int:
        """Return how many heads of queries a layer has."""
        return self.n_heads if self.layer_heads is None else self.layer_heads[layer]

    def kv_heads(self, layer: int) -> int:
        """Return how many heads of keys a layer has."""
        own = self.local_kv_heads if self.window(layer) is not None else None
        return self.n_kv_heads if own is None else own

    def kv_source(self, layer: int) -> int | None:
        """Return the layer whose keys and values a layer attends to; None where it has its own."""
        first, window = self.n_layers - self.kv_shared_layers, self.window(layer)
        if layer < first:
            return None
        return next((n for n in reversed(range(first)) if self.window(n) == window), None)

    def shares_keys(self, layer: int) -> bool:
        """Return whether keys and values of a layer are those of another one, or for another."""
        first, own = self.n_layers - self.kv_shared_layers, self.window(layer)
        if layer >= first:
            return True
        is_last = all(self.window(other) != own for other in range(layer + 1, first))
        return is_last and any(self.window(other) == own for other in range(first, self.n_layers))

    def window(self, layer: int) -> int | None:
        """Return the number of keys a query of a layer sees at most; None for all."""
        return self.sliding_window if chosen(self.sliding_layers, layer) else None
