"""Options of numbers that parts of a layer are multiplied by."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class ScaleOptions(DecoderSizes):
    """Multipliers within layers, as maximal update parametrisation has them (arXiv:2203.03466)."""

    attention_in_scale: float = 1.0  # of what attention is given
    key_scale: float = 1.0  # of its keys, before they are normalised
    value_scale: float = 1.0  # of its values
    attention_out_scale: float = 1.0  # of what it gives
    mixer_in_scale: float = 1.0  # of what something else than attention is given
    mixer_out_scale: float = 1.0  # of what that gives
    # Of what a state space is computed from: gates, values, keys, queries and steps; None for 1.
    state_scales: tuple[float, ...] | None = None
    # Of the gate of a gated MLP, and of what the MLP gives; None for 1.
    mlp_scales: tuple[float, ...] | None = None
