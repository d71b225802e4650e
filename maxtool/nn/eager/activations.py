"""Activations as modules of the eager style, for ``Sequential``."""

from __future__ import annotations

from maxtool.graph import Tensor, ops
from maxtool.nn.activations import GELUForm, Pointwise
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts


class Activation(Pointwise, Module[[Tensor], Tensor]):
    """A function of each element."""


class Identity(Activation, function=lambda x: x):
    """``x`` itself."""


class ReLU(Activation, function=ops.relu):
    """``max(x, 0)``."""


class SiLU(Activation, function=ops.silu):
    """``x * sigmoid(x)``."""


class Sigmoid(Activation, function=ops.sigmoid):
    """``1 / (1 + exp(-x))``."""


class Tanh(Activation, function=ops.tanh):
    """The hyperbolic tangent."""


class GELU(GELUForm, Module[[Tensor], Tensor]):
    """``x`` times the normal distribution function at ``x``, in the form ``approximate``."""

    def __rich_repr__(self) -> Parts:
        yield "approximate", self.approximate, "none"
