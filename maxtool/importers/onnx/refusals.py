"""Refusals: what an operator raises when it cannot take a node."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.graph import Tensor


class RefusedNode(Exception):
    """A node cannot be taken, and why."""


class UnknownValues(RefusedNode):
    """A node needs to know the elements of values that a call decides.

    Attributes:
        tensors: The values.
    """

    def __init__(self, values: Sequence[tuple[str, Tensor]]) -> None:
        names = ", ".join(repr(name) for name, _ in values)
        super().__init__(f"the elements of {names} decide shapes, and are not known")
        self.tensors = [tensor for _, tensor in values]


def require(condition: bool, why: str) -> None:
    """Raise :class:`RefusedNode` unless a condition holds."""
    if not condition:
        raise RefusedNode(why)


# What operations raise where operands do not fit them.
MISFITS = (RefusedNode, ValueError, IndexError, TypeError, ArithmeticError, MemoryError)
