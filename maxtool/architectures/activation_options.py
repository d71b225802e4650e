"""Options of activations that have numbers of their own."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class ActivationOptions(DecoderSizes):
    """Numbers of xIELU (arXiv:2411.13010), of which training finds those of each layer.

    None where ``hidden_act`` is another one.
    """

    # The two that are followed by a softplus: of squares, and of what is below zero.
    xielu_alpha_p: tuple[float, ...] | None = None
    xielu_alpha_n: tuple[float, ...] | None = None
    xielu_beta: tuple[float, ...] | None = None  # the slope at zero
    xielu_eps: tuple[float, ...] | None = None  # the largest number whose exponential is taken
