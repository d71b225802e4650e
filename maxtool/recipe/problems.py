"""Problems of a recipe file, gathered while the rest of it is read on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from maxtool.recipe.name_patterns import Pattern
from maxtool.recipe.old_words import replaced

Table = Mapping[str, Any]


class Problems:
    """Problems of one file."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, where: str, what: str) -> None:
        """Note one problem."""
        self.found.append(f"{where}: {what}")

    def unknown(self, where: str, table: Table, known: Iterable[str]) -> None:
        """Note every key of ``table`` that is not known."""
        known = sorted(known)
        for key in sorted(set(table) - set(known)):
            unknown = f"unknown key {key!r} (known: {', '.join(known)})"
            self.add(where, replaced(key) or unknown)

    def table(self, where: str, value: object) -> Table:
        """``value`` if it is a table; else an empty one and a problem."""
        if isinstance(value, dict):
            return value
        self.add(where, f"needs a table, found {value!r}")
        return {}

    def strings(self, where: str, table: Table, key: str) -> tuple[str, ...]:
        """A key's strings, one or a list; nothing if there is no such key, or a problem."""
        return self.texts(where, table[key]) if key in table else ()

    def texts(self, where: str, value: object) -> tuple[str, ...]:
        """``value`` as strings, one or a list; else nothing and a problem."""
        items = value if isinstance(value, list) else [value]
        if items and all(isinstance(item, str) and item for item in items):
            return tuple(items)
        self.add(where, f"needs a text or a list of texts, found {value!r}")
        return ()

    def string(self, where: str, table: Table, key: str) -> str:
        """A key's text; nothing if there is no such key, or a problem."""
        return self.text(where, table[key]) if key in table else ""

    def text(self, where: str, value: object) -> str:
        """``value`` if it is text; else nothing and a problem."""
        if isinstance(value, str) and value:
            return value
        self.add(where, f"needs a text, found {value!r}")
        return ""

    def pattern(self, where: str, text: str) -> Pattern:
        """A name pattern, its problems noted."""
        pattern = Pattern(text)
        for problem in pattern.problems():
            self.add(where, problem)
        return pattern
