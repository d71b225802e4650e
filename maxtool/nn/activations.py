"""Activations as layers, for lists of layers: what both styles share, and the graph style's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from maxtool.graph import Tensor, ops
from maxtool.graph.ops.elementwise import GELU as FORMS
from maxtool.nn.base import ModuleBase
from maxtool.nn.module import Module

Function: TypeAlias = Callable[[Tensor], Tensor]


class Pointwise(ModuleBase[[Tensor], Tensor]):
    """A function of each element, which a class names."""

    _function: ClassVar[Function]

    def __init_subclass__(cls, function: Function | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)
        if function is not None:
            cls._function = staticmethod(function)

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


class Identity(Pointwise, Module[[Tensor], Tensor], function=lambda x: x):
    """``x`` itself."""


class ReLU(Pointwise, Module[[Tensor], Tensor], function=ops.relu):
    """``max(x, 0)``."""


class SiLU(Pointwise, Module[[Tensor], Tensor], function=ops.silu):
    """``x * sigmoid(x)``."""


class Sigmoid(Pointwise, Module[[Tensor], Tensor], function=ops.sigmoid):
    """``1 / (1 + exp(-x))``."""


class Tanh(Pointwise, Module[[Tensor], Tensor], function=ops.tanh):
    """The hyperbolic tangent."""


class GELU(GELUForm, Module[[Tensor], Tensor]):
    """``x`` times the normal distribution function at ``x``.

    Args:
        approximate: A form that :func:`maxtool.graph.ops.gelu` knows.

    Raises:
        ValueError: If it knows no such form.
    """
