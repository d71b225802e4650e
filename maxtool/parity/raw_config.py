"""Typed values out of a raw configuration, every problem collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TypeVar

import numpy as np

StandIn = TypeVar("StandIn")


@dataclass(slots=True)
class Reader:
    """Reads typed values out of a configuration and collects what is wrong with them.

    Attributes:
        values: The raw configuration.
        problems: What was wrong so far; several readers can share one list.
        prefix: Put before every key.
    """

    values: Mapping[str, object]
    problems: list[str] = field(default_factory=list)
    prefix: str = ""

    def get(self, key: str) -> object:
        """The raw value, or None."""
        return self.values.get(self.prefix + key)

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer; 1 stands in for one that is reported as wrong."""
        value = self._value(key, default)
        if isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0:
            return int(value)
        return self._refuse(key, value, "a positive integer", 1)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; 1 stands in for one that is reported as wrong."""
        value = self._value(key, default)
        if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < np.inf:
            return float(value)
        return self._refuse(key, value, "a positive number", 1.0)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self._value(key, default)
        return (
            value if isinstance(value, bool) else self._refuse(key, value, "true or false", False)
        )

    def only(self, key: str, *allowed: object) -> None:
        """Report a value that this reference does not know; a missing one is fine."""
        if (value := self._value(key, allowed[0])) not in allowed:
            choices = " or ".join(map(str, allowed))
            self.problems.append(f"{self.prefix}{key} is {value!r}; only {choices} is supported")

    def _value(self, key: str, default: object) -> object:
        value = self.get(key)
        return default if value is None else value

    def _refuse(self, key: str, value: object, wanted: str, stand_in: StandIn) -> StandIn:
        found = "is missing" if value is None else f"is {value!r}, not {wanted}"
        self.problems.append(f"{self.prefix}{key} {found}")
        return stand_in
