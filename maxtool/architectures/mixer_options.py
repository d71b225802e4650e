"""Options of layers that have something else than attention."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes, chosen


@dataclass(frozen=True, kw_only=True)
class MixerOptions(DecoderSizes):
    """Options of layers that keep a state of fixed size in the place of keys and values."""

    # Which layers have attention; all when None. The others have what ``mixer`` says.
    attention_layers: tuple[bool, ...] | None = None
    # ``convolution``, a short one over time between two gates, ``out(c * conv(b * x))`` (LFM2);
    # ``delta``, a net by the gated delta rule behind such convolutions (Qwen 3 Next), ``mamba``, a
    # state space behind them (Mamba 2), or ``selective``, one of each channel (Mamba 1).
    mixer: str = "convolution"
    # Whether layers with attention have that too, of the same input; what both give is added.
    mixer_beside: bool = False
    # With block ``single``, which layers are an MLP, and have neither.
    mlp_layers: tuple[bool, ...] | None = None
    conv_taps: int | None = None  # tokens that a convolution looks at, the own one included
    conv_bias: bool = False  # whether convolutions have biases, and LFM2's projections beside them
    state_bias: bool = False  # whether the projections of layers with states have biases
    state_out_bias: bool | None = None  # whether the last has; as the others when None
    # The activation behind convolutions of layers with states; ``hidden_act`` when None.
    state_act: str | None = None
    # The states of a layer: matrices ``[state_key_dim, state_value_dim]``, one for each head; with
    # ``selective`` there is one, of as many channels as values have elements.
    state_heads: int | None = None
    state_key_heads: int | None = None  # heads of queries and keys; ``state_heads`` is a multiple
    state_key_dim: int | None = None
    state_value_dim: int | None = None
    # Where a state space has its norm: ``gated``, of what is gated already; ``before``, before the
    # gate; or ``none``.
    state_norm: str = "gated"
    # Of ``delta``: what decays by itself, a ``head`` or each ``channel`` of its keys (Kimi Linear);
    # the activation of gates, ``silu`` or ``sigmoid``, and how many numbers they are made of, those
    # of the layer's input when None.
    state_decay: str = "head"
    state_gate: str = "silu"
    gate_rank: int | None = None
    # Of ``selective`` and ``delta``: how many numbers steps are made of; of the first, whether
    # these, queries and keys have norms: ``none``, ``plain``, without weights, or ``rms``; what
    # these add to the mean of squares, which is ``norm_eps`` when None.
    step_rank: int | None = None
    scan_norm: str = "none"
    scan_eps: float | None = None

    def has_attention(self, layer: int) -> bool:
        """Return whether a layer has attention."""
        return chosen(self.attention_layers, layer)

    def is_mlp(self, layer: int) -> bool:
        """Return whether a layer is an MLP and nothing else."""
        return self.mlp_layers is not None and self.mlp_layers[layer]

    def has_mixer(self, layer: int) -> bool:
        """Return whether a layer has something else than attention, or beside it."""
        if self.is_mlp(layer):
            return False
        return self.mixer_beside or not self.has_attention(layer)

    @property
    def recurrent_layers(self) -> list[int]:
        """The layers that keep a state of fixed size."""
        return [layer for layer in range(self.n_layers) if self.has_mixer(layer)]
