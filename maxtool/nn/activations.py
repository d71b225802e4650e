"""Activations as layers, for lists of layers: what both styles share, and the graph style's."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

from maxtool.graph import Tensor, ops
from maxtool.graph.ops.elementwise import GELU as FORMS
from maxtool.nn.base import ModuleBase
from maxtool.nn.module import Module

Function: TypeAlias = Callable[[Tensor], Tensor]


class Pointwise(ModuleBase[[Tensor], Tensor]):
    """A function of each element, which a class names."""

    _function: ClassVar[Function]

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return type(self)._function(x)


class GELUForm(ModuleBase[[Tensor], Tensor]):
    """GELU in one of its forms."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in FORMS:
            raise ValueError(f"approximate is one of {', '.join(FORMS)}, not {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return ops.gelu(x, self.approximate)


class Identity(Pointwise, Module[[Tensor], Tensor]):
    """``x`` itself."""

    _function: ClassVar[Function] = staticmethod(lambda x: x)


class ReLU(Pointwise, Module[[Tensor], Tensor]):
    """``max(x, 0)``."""

    _function: ClassVar[Function] = staticmethod(ops.relu)


class SiLU(Pointwise, Module[[Tensor], Tensor]):
    """``x * sigmoid(x)``."""

    _function: ClassVar[Function] = staticmethod(ops.silu)


class Sigmoid(Pointwise, Module[[Tensor], Tensor]):
    """``1 / (1 + exp(-x))``."""

    _function: ClassVar[Function] = staticmethod(ops.sigmoid)


class Tanh(Pointwise, Module[[Tensor], Tensor]):
    """The hyperbolic tangent."""

    _function: ClassVar[Function] = staticmethod(ops.tanh)


class GELU(GELUForm, Module[[Tensor], Tensor]):
    """``x`` times the normal distribution function at ``x``.

    Args:
        approximate: A form that :func:`maxtool.graph.ops.gelu` knows.

    Raises:
        ValueError: If it knows no such form.
    """
