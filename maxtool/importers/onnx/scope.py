"""Scopes: what names mean in a graph, in the graphs inside its nodes, and in functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from maxtool.importers.onnx.attributes import Attributes
from maxtool.importers.onnx.values import Value


class Missing(Enum):
    """Stand-in for the values of nodes that could not be taken."""

    MISSING = "missing"


MISSING = Missing.MISSING


class MissingOperand(Exception):
    """A value that is used here was to come from a node that could not be taken."""


@dataclass
class Scope:
    """Names and their values.

    Attributes:
        opsets: Versions of the operator sets by domain.
        where: Of which function or inner graph it is, for messages.
        prefix: Beginning of the names of its initializers in the checkpoint.
        given: In a function, the attributes of the call.
        outer: The scope around an inner graph.
        initializer: Gives an initializer by name, or None if there is none.
        depth: How many functions and graphs it is inside of.
    """

    opsets: Mapping[str, int]
    where: str = ""
    prefix: str = ""
    given: Attributes = field(default_factory=dict)
    outer: Scope | None = None
    initializer: Callable[[str], Value] = lambda _: None
    depth: int = 0
    values: dict[str, Value | Missing] = field(default_factory=dict)

    def knows(self, name: str) -> bool:
        """Return whether something gives a value of that name."""
        try:
            self.find(name)
        except KeyError:
            return False
        return True

    def find(self, name: str) -> Value | Missing:
        """The value of a name; a ``KeyError`` if nothing before gives it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if (value := scope.initializer(name)) is not None:
                return scope.values.setdefault(name, value)
            scope = scope.outer
        raise KeyError(name)
