"""Activations as modules of the eager style, for ``Sequential``."""

from __future__ import annotations

from typing import ClassVar

from maxtool.graph import Tensor, ops
from maxtool.nn.activations import Function, GELUForm, Pointwise
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts


class Activation(Pointwise, Module[[Tensor], Tensor]):
    """A function of each element, printed without arguments."""

    def __rich_repr__(self) -> Parts:
        return iter(())


class Identity(Activation):
    """``x`` itself."""

    _function: ClassVar[Function] = staticmethod(lambda x: x)


class ReLU(Activation):
    """``max(x, 0)``."""

    _function: ClassVar[Function] = staticmethod(ops.relu)


class SiLU(Activation):
    """``x * sigmoid(x)``."""

    _function: ClassVar[Function] = staticmethod(ops.silu)


class Sigmoid(Activation):
    """``1 / (1 + exp(-x))``."""

    _function: ClassVar[Function] = staticmethod(ops.sigmoid)


class Tanh(Activation):
    """The hyperbolic tangent."""

    _function: ClassVar[Function] = staticmethod(ops.tanh)


class GELU(GELUForm, Module[[Tensor], Tensor]):
    """``x`` times the normal distribution function at ``x``.

    Args:
        approximate: A form that :func:`maxtool.graph.ops.gelu` knows.

    Raises:
        ValueError: If it knows no such form.
    """

    def __rich_repr__(self) -> Parts:
        yield "approximate", self.approximate, "none"
