"""Activations as modules of the eager style, for ``Sequential``."""

from __future__ import annotations

from typing import Any

from maxtool.graph import Tensor
from maxtool.nn import activations
from maxtool.nn.eager.module import Module


class _Activation(Module[[Tensor], Tensor]):
    """Printed with its arguments, of which most have none."""

    def _arguments(self) -> dict[str, Any]:
        return {}


class Identity(activations.Identity, _Activation):
    """``x`` itself."""


class ReLU(activations.ReLU, _Activation):
    """``max(x, 0)``."""


class SiLU(activations.SiLU, _Activation):
    """``x * sigmoid(x)``."""


class Sigmoid(activations.Sigmoid, _Activation):
    """``1 / (1 + exp(-x))``."""


class Tanh(activations.Tanh, _Activation):
    """The hyperbolic tangent."""


class GELU(activations.GELU, _Activation):
    """``x`` times the normal distribution function at ``x``.

    Args:
        approximate: A form that :func:`maxtool.graph.ops.gelu` knows.

    Raises:
        ValueError: If it knows no such form.
    """

    def _arguments(self) -> dict[str, Any]:
        return {} if self.approximate == "none" else {"approximate": self.approximate}
