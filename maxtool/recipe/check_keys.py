"""Keys of a configuration that no field reads: expected, ignored, off, or a problem."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from maxtool.recipe.ignored_keys import IGNORED, NEVER_IGNORED, covered
from maxtool.recipe.keys import Keys, are_flags, short, supported
from maxtool.recipe.schema import Recipe


@dataclass
class KeyCheck:
    """Check of the keys that are left once all fields are read."""

    recipe: Recipe
    keys: Keys
    known: Set[str]  # those that some field knows
    failed: Set[str]  # fields that could not be read
    ignore: frozenset[str]
    reasons: Mapping[str, str] = field(default_factory=dict)  # why a key is never ignored
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    # Keys that nothing reads, and may count, with what is said of them among the problems.
    unknown: dict[str, str] = field(default_factory=dict)
    can_ignore: bool = False  # whether a problem is one that could be ignored

    def run(self) -> None:
        """Look at every key."""
        dialect = self.keys.dialect
        expected, aside = self.recipe.expect[dialect], self.recipe.aside[dialect]
        for key, allowed in expected.items():
            if key not in self.known:
                self._expected(key, allowed, self.keys.get(key, switch=are_flags(allowed)))
        for names in self.recipe.tables.values():
            self._one_of(names)
        known = self.known | expected.keys() | self.recipe.constants[dialect].keys()
        ignored = IGNORED[dialect] | aside.keys
        for key in self.keys.values:
            value = self.keys.get(key)
            if covered(key, NEVER_IGNORED[dialect]):
                if value is not None:
                    refused = f"{key} = {short(value)} is not supported, and never ignored"
                    why = self.reasons.get(key)
                    self.problems.append(f"{refused}: {why}" if why else refused)
            elif key not in known and not covered(key, ignored):
                self._unknown(key, value, known)

    def _one_of(self, names: tuple[str, ...]) -> None:
        """A table under two of its names: frameworks read one of them, and not the same one."""
        said = {name: table for name in names if (table := self.keys.table(name))}
        (first, table), *others = said.items() or [("", {})]
        for other, contents in others:
            keys = [
                key for key in sorted({*table, *contents}) if table.get(key) != contents.get(key)
            ]
            if keys:
                self.problems.append(f"{first} and {other} differ ({', '.join(keys)}): keep one")

    def _expected(self, key: str, allowed: tuple[Any, ...], value: Any) -> None:  # noqa: ANN401
        if value is None or (list(value) if isinstance(value, tuple) else value) in allowed:
            return
        if key in self.ignore:
            self.notes.append(f"{key} = {short(self.keys.get(key))} is ignored as asked")
            return
        self.can_ignore = True
        shown = short(self.keys.get(key))
        self.problems.append(f"{key} = {shown} is not supported ({supported(allowed)})")

    def _unknown(self, key: str, value: Any, known: Set[str]) -> None:  # noqa: ANN401
        # A table of known keys that is null says no more than their absence.
        table = value is None and any(name.startswith(f"{key}.") for name in known)
        if table or self._beside_failure(key):
            return
        if covered(key, self.ignore):
            self.notes.append(f"{key} = {short(value)} is ignored as asked")
        elif value is None or value is False or value in ({}, []):
            self.notes.append(f"{key} = {short(value)} is unknown, and off")
        else:
            self.can_ignore = True
            self.unknown[key] = f"{key} = {short(value)} is unknown"
            self.problems.append(self.unknown[key])

    def _beside_failure(self, key: str) -> bool:
        """Return whether the key only details a table whose main key has failed already."""
        if self.keys.dialect == "gguf" or "." not in key:
            return False
        table = key.rpartition(".")[0]
        failed = [self.recipe.fields[name].spellings.get("hf", ()) for name in self.failed]
        return any(
            known.rpartition(".")[0] == table and self.keys.get(known) is not None
            for ways in failed
            for way in ways
            for known in way.keys
        )
