"""Patterns over tensor names that match whole dotted segments, never parts of one.

``layers.{layer}.attn.q.weight`` matches ``layers.3.attn.q.weight`` with ``layer`` 3, and nothing
that merely contains those letters. ``*`` stands for one or more segments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

INDEX = re.compile(r"\{([a-z][a-z0-9_]*)\}")
NUMBER = r"(0|[1-9][0-9]{0,8})"  # written one way only: 01 is not 1


@dataclass(frozen=True)
class Pattern:
    """One name pattern.

    Args:
        text: Dotted segments, each a literal, a named index ``{name}`` or ``*``.
    """

    text: str

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts between the dots."""
        return tuple(self.text.split("."))

    @cached_property
    def indices(self) -> frozenset[str]:
        """The names of the indices."""
        return frozenset(INDEX.findall(self.text))

    @property
    def wild(self) -> bool:
        """Whether it has a ``*``."""
        return "*" in self.segments

    def problems(self) -> list[str]:
        """What is wrong with the pattern's text; nothing when it can be used."""
        found = [
            f"{self.text!r}: {reason}" for reason in map(_segment_problem, self.segments) if reason
        ]
        names = INDEX.findall(self.text)
        repeated = sorted({name for name in names if names.count(name) > 1})
        return found + [f"{self.text!r}: index {{{name}}} appears twice" for name in repeated]

    def match(self, name: str) -> dict[str, int] | None:
        """The indices with which ``name`` is this pattern, or None when it is not."""
        found = self._regex.fullmatch(name)
        return None if found is None else {k: int(v) for k, v in found.groupdict().items()}

    def name(self, indices: Mapping[str, int]) -> str:
        """The name this pattern stands for at ``indices``."""
        return INDEX.sub(lambda found: str(indices[found[1]]), self.text)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(r"\.".join(map(_segment_regex, self.segments)))


def _segment_regex(segment: str) -> str:
    if segment == "*":
        return r"[^.]+(?:\.[^.]+)*"
    if index := INDEX.fullmatch(segment):
        return f"(?P<{index[1]}>{NUMBER})"
    return re.escape(segment)


def _segment_problem(segment: str) -> str | None:
    if not segment:
        return "an empty segment"
    if segment == "*" or INDEX.fullmatch(segment):
        return None
    if any(char in segment for char in "{}*"):
        return f"segment {segment!r} mixes text with an index; an index is a whole segment"
    return None
