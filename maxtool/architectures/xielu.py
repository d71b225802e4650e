"""xIELU (Huang and Schlag 2024, arXiv:2411.13010), an activation with numbers for each layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from maxtool.architectures.config import other_lengths
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.dtype import DType
from maxtool.graph import DerivedWeight, DeviceRef, Tensor, ops

NAME = "xielu"
OPTIONS = ("xielu_alpha_p", "xielu_alpha_n", "xielu_beta", "xielu_eps")
# What one layer computes with: of squares, of what is below zero, the slope at zero, and the
# largest number whose exponential is taken.
Numbers: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


class LayerNumbers:
    """The numbers of one layer, which follow from the configuration.

    A graph takes them as weights and hands them to its layers, so that layers that differ in
    nothing else share a subgraph.
    """

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        alpha_p, alpha_n, beta, eps = (float(getattr(config, name)[layer]) for name in OPTIONS)

        def number(name: str, value: float) -> DerivedWeight:
            array = np.array([value], np.float32)
            return DerivedWeight(f"xielu.{layer}.{name}", DType.float32, (1,), lambda: array)

        self.alpha_p = number("alpha_p", _softplus(alpha_p))
        self.alpha_n = number("alpha_n", beta + _softplus(alpha_n))
        self.beta, self.eps = number("beta", beta), number("eps", eps)

    def on(self, device: DeviceRef) -> Numbers:
        """The numbers on a device."""
        beta, eps = self.beta.on(device), self.eps.on(device)
        return self.alpha_p.on(device), self.alpha_n.on(device), beta, eps


def xielu(x: Tensor, numbers: Numbers) -> Tensor:
    """``beta x``, plus ``alpha_p x**2`` above zero, or ``alpha_n (exp(min(x, eps)) - 1 - x)``."""
    alpha_p, alpha_n, beta, eps = numbers
    below = ops.exp(ops.minimum(x, eps)) - 1.0 - x
    return ops.where(x > 0, x * x * alpha_p, below * alpha_n) + x * beta


def make_numbers(config: DecoderConfig) -> list[LayerNumbers]:
    """The numbers of each layer; none where the activation has no such."""
    layers = range(config.n_layers) if config.hidden_act == NAME else ()
    return [LayerNumbers(config, layer) for layer in layers]


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def check(config: DecoderConfig) -> Iterator[str]:
    """Yield a line for each thing that is wrong with the options of xIELU."""
    asked = config.hidden_act == NAME
    for name in OPTIONS:
        values = getattr(config, name)
        if asked and values is None:
            yield f"hidden_act {NAME!r} needs {name}"
        if not asked and values is not None:
            yield f"{name} with hidden_act {config.hidden_act!r}"
        if not all(map(math.isfinite, values or ())):
            yield f"{name} has a value that is not finite"
    yield from other_lengths(config, dict.fromkeys(OPTIONS, config.n_layers))
    has_states = config.attention_layers is not None or config.mixer_beside
    if asked and (config.n_experts is not None or has_states):
        yield f"hidden_act {NAME!r} is for MLPs alone, not for experts or layers with states"
