"""Patterns over tensor names that match whole dotted segments, and other spellings of names.

``layers.{layer}.attn.q.weight`` matches ``layers.3.attn.q.weight`` with ``layer`` 3, and nothing
that merely contains those letters. ``*`` stands for one or more segments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

T = TypeVar("T")

INDEX = re.compile(r"\{([a-z][a-z0-9_]*)\}")
NUMBER = r"(?:0|[1-9][0-9]{0,8})"  # written one way only: 01 is not 1


@dataclass(frozen=True)
class Pattern:
    """A name pattern: dotted segments, each a literal, a named index ``{name}`` or ``*``."""

    text: str

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The parts between the dots."""
        return tuple(self.text.split("."))

    @cached_property
    def indices(self) -> frozenset[str]:
        """The names of the indices."""
        return frozenset(INDEX.findall(self.text))

    @property
    def wild(self) -> bool:
        """Presence of a ``*``."""
        return "*" in self.segments

    def problems(self) -> Iterator[str]:
        """Problems of the pattern's text; none when it can be used."""
        yield from (f"{self.text!r}: {what}" for what in map(_problem, self.segments) if what)
        names = INDEX.findall(self.text)
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{self.text!r}: index {{{name}}} appears twice"

    def match(self, name: str) -> dict[str, int] | None:
        """The indices with which ``name`` is this pattern, or None when it is not."""
        match = self.regex.fullmatch(name)
        return None if match is None else {k: int(v) for k, v in match.groupdict().items()}

    def name(self, indices: Mapping[str, int | str]) -> str:
        """The name this pattern stands for at ``indices``."""
        return INDEX.sub(lambda index: str(indices[index[1]]), self.text)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The names it matches: a group by name for each index, one by number for each ``*``."""
        return re.compile(r"\.".join(map(_regex, self.segments)))


def _regex(segment: str) -> str:
    if segment == "*":
        return r"([^.]+(?:\.[^.]+)*)"
    if index := INDEX.fullmatch(segment):
        return f"(?P<{index[1]}>{NUMBER})"
    return re.escape(segment)


def _problem(segment: str) -> str | None:
    if not segment:
        return "an empty segment"
    if segment == "*" or INDEX.fullmatch(segment):
        return None
    if any(char in segment for char in "{}*"):
        return f"segment {segment!r} mixes text with an index; an index is a whole segment"
    return None


# --- other spellings -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Rename:
    """Another spelling of names: a prefix that may be missing, a name of an older version.

    ``*`` and indices stand for the same in the names spelled otherwise and in those used here.
    """

    old: Pattern
    new: Pattern

    def problems(self) -> Iterator[str]:
        """Reasons why the new name does not follow from the old one."""
        both = f"{self.old.text!r} = {self.new.text!r}"
        if [p.segments.count("*") for p in (self.old, self.new)] not in ([0, 0], [1, 1]):
            yield f"{both}: needs one '*' on both sides, or on neither"
        if unknown := sorted(self.new.indices - self.old.indices):
            yield f"{both}: {', '.join(unknown)} is not on the left side"

    def apply(self, name: str) -> str:
        """The name as it is spelled here; the same one if this spelling is not its."""
        match = self.old.regex.fullmatch(name)
        if match is None:
            return name
        numbered = set(range(1, match.re.groups + 1)) - {*match.re.groupindex.values()}
        rest = "".join(match[group] for group in numbered)
        return self.new.name(match.groupdict()).replace("*", rest)


def renamed(renames: Sequence[Rename], items: Mapping[str, T]) -> dict[str, T]:
    """``items`` by the names they have here, in their order; the first of several stays."""
    result: dict[str, T] = {}
    for name, item in items.items():
        result.setdefault(_spelled(renames, name), item)
    return result


def clashes(renames: Sequence[Rename], names: Iterable[str]) -> Iterator[str]:
    """Names that are there in two spellings, a line each."""
    first: dict[str, str] = {}
    for name in names:
        spelled = _spelled(renames, name)
        if first.setdefault(spelled, name) != name:
            yield f"{name} is {first[spelled]} again, in another spelling"


def _spelled(renames: Sequence[Rename], name: str) -> str:
    for rename in renames:
        name = rename.apply(name)
    return name


def is_among(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is one of others, in any layer where it has ``{layer}``, or ``*``."""
    if not {*name} & {*"{*"}:
        return name in names
    pattern = Pattern(name)
    return any(pattern.match(other) is not None for other in names)
