"""Damage to a recipe: every field, rule and constant of its tables in turn.

Damage is done to the parsed TOML, whatever words it holds, so that a new word of the language is
damaged too. Only what decides nothing is left alone.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from maxtool.recipe.codecs import CODECS
from maxtool.recipe.operations import OPERATIONS

Table = dict[str, Any]
Path = tuple[str | int, ...]

# Names, texts for the user, and how closely a compiled model has to agree.
LEFT_ALONE = frozenset({"schema", "name", "extends", "architecture", "check", "note"})
TEXTS = frozenset({"lost", "zero", "refuse"})


@dataclass(frozen=True)
class Mutation:
    """One change of a recipe's tables.

    Attributes:
        path: Keys and indices that lead to what is changed.
        kind: "drop", "set", or "swap" with another entry of the same table.
        value: What it is set to, or the other entry.
    """

    path: Path
    kind: str
    value: Any = None

    def __str__(self) -> str:
        shown = {"set": " to ", "swap": " with "}.get(self.kind, "")
        shown += "" if self.kind == "drop" else repr(self.value)
        return f"{self.kind} {'/'.join(map(str, self.path))}{shown}"

    def words(self, tables: Table) -> frozenset[str]:
        """The last parts of all names in the field or the section that is changed."""
        return frozenset(_words([self.path[:2], tables[str(self.path[0])][self.path[1]]]))

    def apply(self, tables: Table) -> Table:
        """The damaged tables."""
        result = copy.deepcopy(tables)
        *parents, last = self.path
        table: Any = result
        for part in parents:
            table = table[part]
        if self.kind == "drop":
            del table[last]
        elif self.kind == "set":
            table[last] = self.value
        else:
            table[last], table[self.value] = table[self.value], table[last]
        return result


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.rpartition(".")[2]
    elif isinstance(value, dict):
        yield from _words([*value, *value.values()])
    elif isinstance(value, list | tuple):
        yield from itertools.chain.from_iterable(map(_words, value))


def mutations(tables: Table) -> Iterator[Mutation]:
    """All damage to a recipe, section by section."""
    for section, content in tables.items():
        if section not in LEFT_ALONE:
            yield from _inside(content, (section,))


def _inside(value: Any, path: Path) -> Iterator[Mutation]:
    if isinstance(value, dict | list):
        named = value.items() if isinstance(value, dict) else enumerate(value)
        entries = [(key, each) for key, each in named if key not in LEFT_ALONE]
        for (key, each), (other, after) in itertools.zip_longest(
            entries, entries[1:], fillvalue=(None, None)
        ):
            own = (*path, key)
            yield Mutation(own, "drop")
            if path[0] != "weights" and type(after) is type(each) and after != each:
                yield Mutation(own, "swap", other)
            yield from _inside(each, own)
    elif path[-1] not in TEXTS and path[-2:-1] not in [(text,) for text in TEXTS]:
        for other in _alike(path[-1], value) or [_other(value)]:
            yield Mutation(path, "set", other)


def _alike(word: str | int, name: Any) -> list[str]:
    """The codecs that take the same keys for the same fields; operations of the same parameters."""
    tables: dict[str | int, dict[str, Any]] = {
        "codec": {each: (one.types, len(one.keys)) for each, one in CODECS.items()},
        "op": {each: one.params for each, one in OPERATIONS.items()},
    }
    alike = tables.get(word, {})
    return [each for each in alike if each != name and alike[each] == alike.get(name)]


def swaps(tables: Table) -> Iterator[Mutation]:
    """Each rule exchanged with the next one of a tensor of as many dimensions.

    Args:
        tables: Those of a recipe, with a rule for each parameter.
    """
    for dialect, rules in tables.get("weights", {}).items():
        kinds: dict[str, list[str]] = {}
        for target, rule in rules.items() if isinstance(rules, dict) else ():
            if rule and "." in target:
                kinds.setdefault(f"{target[-5:]}{'norm' in target}", []).append(target)
        for alike in kinds.values():
            for left, right in itertools.pairwise(alike):
                yield Mutation(("weights", dialect, left), "swap", right)


def _other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 2 or 1.0
    return f"{value}x"
