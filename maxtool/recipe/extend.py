"""Variants: a recipe that ``extends`` another one says only how it differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from maxtool.recipe.problems import Table

EXTENDS = "extends"
MAX_RECIPES = 16
# How many tables deep a section is joined key by key; what lies deeper is replaced as a whole.
DEPTHS: Mapping[str, int] = {
    **dict.fromkeys(("match", "tables", "config", "order", "aside", "entries", "check"), 1),
    **dict.fromkeys(("expect", "constants", "computed", "weights"), 2),
}
# Where ``KEY = false`` takes an inherited entry away; elsewhere false is a value. With the rules of
# a dialect all goes that is inherited of it.
REMOVABLE = frozenset({"aside", "config", "computed", "weights", "entries"})


def extended(data: Table, find: Callable[[str], Table]) -> Table:
    """``data``, a recipe's tables, with what it inherits; ValueError if recipes form a circle.

    ``extends`` names other recipes, whose tables ``find`` gives, and which may extend further ones.
    """
    count = 1

    def whole(tables: Table) -> Table:
        nonlocal count
        names = bases(tables)
        count += len(names)
        if count > MAX_RECIPES:
            raise ValueError(f"more than {MAX_RECIPES} recipes that extend each other")
        return reduce(_over, [*(whole(find(name)) for name in names), tables])

    return whole(data)


def bases(tables: Table) -> list[str]:
    """The names of the recipes that one extends, of which the later ones count.

    Raises:
        ValueError: If they are no names.
    """
    if EXTENDS not in tables:
        return []
    named = tables[EXTENDS]
    names = named if isinstance(named, list) and named else [named]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"needs the name of a recipe, found {name!r}")
    return names


def _over(base: Table, variant: Table) -> Table:
    own = {key: value for key, value in variant.items() if key != EXTENDS}
    joined = {
        key: _joined(base[key], own[key], depth, key in REMOVABLE)
        for key, depth in DEPTHS.items()
        if key in base and key in own
    }
    result = {**base, **own, **joined}
    for dialect in _taken_away(own):
        result = {key: _without(value, dialect) for key, value in result.items()}
    return result


def _taken_away(variant: Table) -> list[str]:
    """The dialects that a model has no form in, of whose rules it says false."""
    rules = variant.get("weights")
    return [name for name, own in rules.items() if own is False] if isinstance(rules, dict) else []


def _without(section: Any, dialect: str) -> Any:  # noqa: ANN401 - TOML
    """A section without all that is said of a dialect, in each of its fields too."""
    if not isinstance(section, dict):
        return section
    return {
        key: {name: each for name, each in value.items() if name != dialect}
        if isinstance(value, dict)
        else value
        for key, value in section.items()
        if key != dialect
    }


def _joined(base: Any, variant: Any, depth: int, removable: bool) -> Any:  # noqa: ANN401 - TOML
    if not (depth and isinstance(base, dict) and isinstance(variant, dict)):
        return variant
    result = dict(base)
    for key, value in variant.items():
        if value is False and removable:
            result.pop(key, None)
        else:
            result[key] = _joined(base.get(key), value, depth - 1, removable)
    return result
