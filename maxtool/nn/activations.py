"""Activations as layers, for lists of layers."""

from __future__ import annotations

from maxtool.graph import Tensor, ops
from maxtool.graph.ops.elementwise import GELU as FORMS
from maxtool.nn.module import Module


class Identity(Module[[Tensor], Tensor]):
    """``x`` itself."""

    def forward(self, x: Tensor) -> Tensor:
        """``x``."""
        return x


class ReLU(Module[[Tensor], Tensor]):
    """``max(x, 0)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return ops.relu(x)


class SiLU(Module[[Tensor], Tensor]):
    """``x * sigmoid(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return ops.silu(x)


class Sigmoid(Module[[Tensor], Tensor]):
    """``1 / (1 + exp(-x))``."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return ops.sigmoid(x)


class Tanh(Module[[Tensor], Tensor]):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return ops.tanh(x)


class GELU(Module[[Tensor], Tensor]):
    """``x`` times the normal distribution function at ``x``.

    Args:
        approximate: A form that :func:`maxtool.graph.ops.gelu` knows.

    Raises:
        ValueError: If it knows no such form.
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in FORMS:
            raise ValueError(f"approximate is one of {', '.join(FORMS)}, not {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return ops.gelu(x, self.approximate)
