"""Options of layers that have something else than attention."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes, chosen


@dataclass(frozen=True, kw_only=True)
class MixerOptions(DecoderSizes):
    """Options of layers that keep a state of fixed size in the place of keys and values."""

    # Which layers have attention; all when None. The others have a short convolution over time
    # between two gates, ``out(c * conv(b * x))`` (LFM2).
    attention_layers: tuple[bool, ...] | None = None
    conv_taps: int | None = None  # tokens that it looks at, the own one included
    conv_bias: bool = False  # whether it and its projections have biases

    def has_attention(self, layer: int) -> bool:
        """Return whether a layer has attention."""
        return chosen(self.attention_layers, layer)

    @property
    def recurrent_layers(self) -> list[int]:
        """The layers that have something else."""
        return [layer for layer in range(self.n_layers) if not self.has_attention(layer)]
