"""Typed values out of a raw configuration, every problem collected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TypeGuard, TypeVar

import numpy as np

StandIn = TypeVar("StandIn")
LARGEST = 2**63
"""Below it is every number that is believed: what sizes and bases can be."""


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
        """The raw value, an array as a tuple; or None."""
        value = self.values.get(self.prefix + key)
        return tuple(value.tolist()) if isinstance(value, np.ndarray) else value

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer; 1 stands in for one that is reported as wrong."""
        value = self._value(key, default)
        if _is_positive(value) and isinstance(value, Integral):
            return int(value)
        return self._refuse(key, value, "a positive integer", 1)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; 1 stands in for one that is reported as wrong."""
        value = self._value(key, default)
        if _is_positive(value):
            return float(value)
        return self._refuse(key, value, "a positive number", 1.0)

    def optional_number(self, key: str) -> float | None:
        """A positive number, or None where there is none."""
        return None if self.get(key) is None else self.number(key)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of positive numbers; none stand in for what is reported as wrong."""
        value = self.get(key)
        listed = value if isinstance(value, list | tuple) else []
        if len(listed) == count and all(map(_is_positive, listed)):
            return tuple(map(float, listed))
        return self._refuse(key, value, f"a list of {count} positive numbers", ())

    def section(self, key: str) -> Mapping[str, object]:
        """A table; an empty one where there is none."""
        value = self._value(key, {})
        return value if isinstance(value, Mapping) else self._refuse(key, value, "a table", {})

    def choice(self, key: str, allowed: Collection[str], default: str) -> str:
        """One of some words."""
        value = self._value(key, default)
        if isinstance(value, str) and value in allowed:
            return value
        return self._refuse(key, value, f"one of {', '.join(allowed)}", default)

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


def _is_positive(value: object) -> TypeGuard[Real]:
    """Whether it is a number above zero that 64 bits hold; not NaN or a truth value."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return bool(value > 0 and value < LARGEST)  # type: ignore[operator]
