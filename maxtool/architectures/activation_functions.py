"""Activations, element by element, by the names that options have for them.

They are transformers' names (``ACT2FN`` in its ``activations.py``), one for each formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import sqrt

from maxtool.graph import Tensor, ops

# The mean and the deviation of ``laplace`` (Ma et al., "Mega", 2022, equation 13).
LAPLACE_MEAN, LAPLACE_DEVIATION = 0.707107, 0.282095


def _gelu_10(x: Tensor) -> Tensor:
    """GELU between -10 and 10 (Wu et al., "Integer Quantization for Deep Learning", 2020)."""
    return ops.clamp(ops.gelu(x), -10.0, 10.0)


def _hardswish(x: Tensor) -> Tensor:
    """``x * relu6(x + 3) / 6`` (Howard et al., "Searching for MobileNetV3", 2019)."""
    return x * ops.clamp(x + 3.0, 0.0, 6.0) / 6.0


def _laplace(x: Tensor) -> Tensor:
    """The distribution function of the normal distribution of that mean and deviation."""
    return (ops.erf((x - LAPLACE_MEAN) / (LAPLACE_DEVIATION * sqrt(2.0))) + 1.0) * 0.5


def _leaky_relu(x: Tensor) -> Tensor:
    """``x``, a hundredth of it below 0."""
    return ops.where(ops.less(x, 0.0), x * 0.01, x)


def _mish(x: Tensor) -> Tensor:
    """``x * tanh(softplus(x))`` (Misra, "Mish", 2019)."""
    return x * ops.tanh(ops.softplus(x))


def _quick_gelu(x: Tensor) -> Tensor:
    """``x * sigmoid(1.702 x)``, GELU as CLIP has it."""
    return x * ops.sigmoid(x * 1.702)


def _relu2(x: Tensor) -> Tensor:
    """``relu(x) ** 2`` (So et al., "Primer", 2021)."""
    positive = ops.relu(x)
    return positive * positive


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": ops.silu,
    "gelu": ops.gelu,
    "gelu_tanh": partial(ops.gelu, approximate="tanh"),
    "relu": ops.relu,
    "relu2": _relu2,
    "quick_gelu": _quick_gelu,
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
    "relu6": lambda x: ops.clamp(x, 0.0, 6.0),
    "leaky_relu": _leaky_relu,
    "hardswish": _hardswish,
    "mish": _mish,
    "gelu_10": _gelu_10,
    "laplace": _laplace,
    "sqrtsoftplus": lambda x: ops.sqrt(ops.softplus(x)),
    "linear": lambda x: x,
}
