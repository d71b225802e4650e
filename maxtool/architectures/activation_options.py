"""Options of activations that have numbers of their own, or those of each layer."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class ActivationOptions(DecoderSizes):
    """Numbers of layers, by which their MLPs differ.

    Those of xIELU (arXiv:2411.13010), which training finds, are None where ``hidden_act`` is
    another activation.
    """

    # The two that are followed by a softplus: of squares, and of what is below zero.
    xielu_alpha_p: tuple[float, ...] | None = None
    xielu_alpha_n: tuple[float, ...] | None = None
    xielu_beta: tuple[float, ...] | None = None  # the slope at zero
    xielu_eps: tuple[float, ...] | None = None  # the largest number whose exponential is taken
    # The share of each layer's gates that are zero, as far as they are normally distributed: what
    # is left of others is how far they are above that quantile (Gemma 3n). 0 for gates as they are.
    gate_sparsity: tuple[float, ...] | None = None
