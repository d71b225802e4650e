"""Other spellings of tensor names: prefixes that may be missing, names of older versions.

``{ "bert.*" = "*", "*.LayerNorm.gamma" = "*.LayerNorm.weight" }`` is applied in order, by whole
dotted segments, before anything looks at a name. ``*`` stands for the same on both sides. What is
written has the names on the right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from maxtool.recipe.names import NUMBER, Pattern

T = TypeVar("T")


@dataclass(frozen=True)
class Rename:
    """One other spelling.

    Args:
        old: The names that are spelled otherwise.
        new: How they are spelled here.
    """

    old: Pattern
    new: Pattern

    def problems(self) -> Iterator[str]:
        """Why the new name does not follow from the old one; nothing when it does."""
        both = f"{self.old.text!r} = {self.new.text!r}"
        if [p.segments.count("*") for p in (self.old, self.new)] not in ([0, 0], [1, 1]):
            yield f"{both}: needs one '*' on both sides, or on neither"
        if unknown := sorted(self.new.indices - self.old.indices):
            yield f"{both}: {', '.join(unknown)} is not on the left side"

    def apply(self, name: str) -> str:
        """The name as it is spelled here; the same one if this spelling is not its."""
        found = self._old.fullmatch(name)
        if found is None:
            return name
        parts = ((self._group(segment), segment) for segment in self.new.segments)
        return ".".join(found[group] if group else segment for group, segment in parts)

    @cached_property
    def _old(self) -> re.Pattern[str]:
        parts = ((self._group(segment), segment) for segment in self.old.segments)
        return re.compile(
            r"\.".join(
                f"(?P<{group}>{'.+' if group == 'rest' else NUMBER})" if group else re.escape(text)
                for group, text in parts
            )
        )

    @staticmethod
    def _group(segment: str) -> str:
        """What the pattern calls what a segment stands for; nothing for plain text."""
        if segment == "*":
            return "rest"
        return f"index_{segment[1:-1]}" if segment.startswith("{") else ""


def renamed(renames: Sequence[Rename], items: Mapping[str, T]) -> dict[str, T]:
    """``items`` by the names they have here, in their order; the first of several stays."""
    result: dict[str, T] = {}
    for name, item in items.items():
        result.setdefault(_spelled(renames, name), item)
    return result


def clashes(renames: Sequence[Rename], names: Iterable[str]) -> Iterator[str]:
    """What is there in two spellings, a line each."""
    first: dict[str, str] = {}
    for name in names:
        spelled = _spelled(renames, name)
        if first.setdefault(spelled, name) != name:
            yield f"{name} is {first[spelled]} again, in another spelling"


def _spelled(renames: Sequence[Rename], name: str) -> str:
    for rename in renames:
        name = rename.apply(name)
    return name
