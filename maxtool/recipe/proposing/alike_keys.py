"""Keys of a configuration that a recipe has under other names: what other recipes call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from maxtool.recipe.problems import Table
from maxtool.recipe.schema import DIALECTS, Dialect, Field, Recipe

# Types of fields that are one number, and the share of words that two keys for one have at least.
NUMBERS = frozenset({"int", "count", "float"})
NEAR = 0.75


def spellings(recipes: Iterable[Recipe], dialect: Dialect) -> dict[str, set[str]]:
    """The keys of each field in all recipes."""
    found: dict[str, set[str]] = {}
    for recipe in recipes:
        for name, item in recipe.fields.items():
            found.setdefault(name, set()).update(_plain_keys(item, dialect))
    return found


def other_spellings(
    recipe: Recipe, spelled: Mapping[str, Set[str]], dialect: Dialect, unknown: Sequence[str]
) -> dict[str, str]:
    """The fields of a recipe whose keys are other ones in a checkpoint, each with that key.

    A key is taken for a field that it is in another recipe, if no second one is.

    Args:
        recipe: The recipe.
        spelled: The keys of each field in all of them.
        dialect: The dialect of the checkpoint.
        unknown: The keys of the checkpoint that the recipe does not know.
    """
    left = {*unknown}
    plain = [name for name, mine in recipe.fields.items() if _is_plain(mine, dialect)]
    found = {name: spelled[name] & left for name in plain}
    return _each_once({name: next(iter(keys)) for name, keys in found.items() if len(keys) == 1})


def by_words(
    recipe: Recipe, dialect: Dialect, names: Sequence[str], unknown: Sequence[str]
) -> dict[str, str]:
    """The fields, of some that are numbers, whose keys have nearly the words of one unknown key."""
    found = {}
    for name in names:
        item = recipe.fields[name]
        if _is_plain(item, dialect) and item.type in NUMBERS:
            own = _plain_keys(item, dialect)
            keys = [key for key in unknown if any(_likeness(key, one) >= NEAR for one in own)]
            if len(keys) == 1:
                found[name] = keys[0]
    return _each_once(found)


def by_value(
    wanted: Mapping[str, int], values: Mapping[str, Any], unknown: Sequence[str]
) -> dict[str, str]:
    """The keys, of those unknown, that alone have the value which tensors give a field."""
    found = {}
    for name, value in wanted.items():
        keys = [key for key in unknown if type(values[key]) is int and values[key] == value]
        if len(keys) == 1:
            found[name] = keys[0]
    return _each_once(found)


def is_one_way(told: object) -> bool:
    """Return whether a dialect's part of a field, as TOML, is one way of spelling it."""
    return not (isinstance(told, list) and any(isinstance(way, dict) for way in told))


def with_key(field: Any, dialect: Dialect, key: str) -> Table:  # noqa: ANN401 - TOML
    """The table of a field that a dialect keeps under another key alone."""
    told = field[dialect]
    way = {**told, "keys": [key]} if isinstance(told, dict) else key
    if isinstance(way, dict):
        way.pop("also", None)
    return {name: value for name, value in field.items() if name not in DIALECTS} | {dialect: way}


def _each_once(found: Mapping[str, str]) -> dict[str, str]:
    """Fields with their keys, without keys that two of them would have."""
    taken = [*found.values()]
    return {name: key for name, key in found.items() if taken.count(key) == 1}


def _likeness(first: str, second: str) -> float:
    """The share of words that two keys have in common."""
    ours, theirs = Counter(first.lower().split("_")), Counter(second.lower().split("_"))
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


def _is_plain(item: Field, dialect: Dialect) -> bool:
    """Return whether a field is a key's value, whatever other fields are."""
    ways = item.spellings.get(dialect, ())
    return len(ways) == 1 and not ways[0].when and len(ways[0].slots) == 1


def _plain_keys(item: Field, dialect: Dialect) -> list[str]:
    """The keys whose value a field is, as it stands."""
    ways = item.spellings.get(dialect, ())
    return [key for way in ways if not way.codec and len(way.slots) == 1 for key in way.keys]
