"""Activations, plain and gated MLPs (arXiv:2002.05202), and a choice of experts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from maxtool.parity.decoder.attention import softmax
from maxtool.parity.decoder.settings import Experts

Array = NDArray[np.float64]
# From a role and what is multiplied by its weight to the product, bias added.
Linear = Callable[[str, Array], Array]


def silu(x: Array) -> Array:
    """Each element times its logistic function, written so that exp cannot overflow."""
    activated: Array = x * (1 + np.tanh(x / 2)) / 2
    return activated


def gelu(x: Array) -> Array:
    """Each element times the normal distribution function (arXiv:1606.08415)."""
    distribution = np.fromiter(map(math.erf, (x / math.sqrt(2)).ravel()), np.float64, x.size)
    activated: Array = x * (1 + distribution.reshape(x.shape)) / 2
    return activated


def gelu_tanh(x: Array) -> Array:
    """The approximation of :func:`gelu` by tanh."""
    activated: Array = x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return activated


def relu(x: Array) -> Array:
    """Negative elements become zero."""
    return np.maximum(x, 0)


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "silu": silu,
    "swish": silu,
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": relu,
}
"""By the names that configurations have for them."""


def feed(linear: Linear, activation: str, x: Array, *, gated: bool) -> Array:
    """An MLP of ``x`` [..., hidden]: ``down(act(gate x) * up x)``, or ``down(act(up x))``."""
    act, up = ACTIVATIONS[activation], linear("up", x)
    return linear("down", act(linear("gate", x)) * up if gated else act(up))


def choose(experts: Experts, scores: Array) -> Array:
    """The weight of each expert [..., count]: zero for those that a token does not go through.

    Args:
        experts: How many are used, and whether their weights are made to sum to one.
        scores: The router's outputs [..., count].
    """
    shares = softmax(scores)
    used = np.argsort(-shares, axis=-1, kind="stable")[..., : experts.used]
    weights = np.zeros_like(shares)
    np.put_along_axis(weights, used, np.take_along_axis(shares, used, -1), -1)
    if experts.normalized:
        weights /= weights.sum(axis=-1, keepdims=True)
    return weights
