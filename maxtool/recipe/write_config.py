"""A recipe's fields written as the keys of a dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.recipe.computed import said_by_tensors
from maxtool.recipe.expressions import evaluate, same
from maxtool.recipe.formulas import Undefined
from maxtool.recipe.keys import short
from maxtool.recipe.schema import PRESENCE, Dialect, Field, Recipe, Spelling
from maxtool.recipe.spell import Unspellable, spelled

Values = Mapping[str, Any]


def written_keys(
    recipe: Recipe,
    dialect: Dialect,
    values: Values,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The keys that say ``values`` in a dialect, in the recipe's order.

    Args:
        recipe: Says how each field is spelled.
        dialect: Whose keys to write.
        values: Every field of the recipe.
        extra: Keys that the recipe's order may place among its own.

    Raises:
        ConfigurationError: If the dialect has no way to say a value; lists all of them.
    """
    written = {**recipe.constants[dialect], **(extra or {})}
    problems: list[str] = []
    tensors = said_by_tensors(recipe.computed[dialect], values)
    for item in recipe.fields.values():
        if item.name in tensors.whole:
            continue
        try:
            keys = _keys(item, dialect, values)
        except Unspellable:
            if item.name not in tensors.implied:
                problems.append(
                    f"{item.name} = {short(values[item.name])} has no spelling in {dialect}"
                )
            continue
        except Undefined as error:
            problems.append(f"{item.name}: {error.what}")
            continue
        problems += _contradictions(item, keys, written)
        written |= keys
    if problems:
        raise ConfigurationError(
            f"the configuration cannot be written for {dialect}", problems=problems
        )
    return dict(sorted(written.items(), key=_order(recipe, dialect, extra or {})))


def _order(
    recipe: Recipe, dialect: Dialect, extra: Mapping[str, Any]
) -> Callable[[tuple[str, Any]], int]:
    """Where a key stands; of those without a place constants and extra ones first, others last."""
    keys = recipe.order.get(dialect, ())
    order = {key: index for index, key in enumerate(keys)}
    first = dict.fromkeys({**recipe.constants[dialect], **extra}, -1)
    return lambda entry: {**first, **order}.get(entry[0], len(keys))


def written_notes(recipe: Recipe, dialect: Dialect, values: Values) -> list[str]:
    """What a user should know of the keys that :func:`written_keys` gives."""
    said = said_by_tensors(recipe.computed[dialect], values).whole
    items = [
        item
        for item in recipe.fields.values()
        if item.name not in said and not _is_idle(item, values)
    ]
    return [note for item in items for note in _notes(item, dialect, values)]


def _notes(item: Field, dialect: Dialect, values: Values) -> Iterator[str]:
    """What a user should know of how one field is written."""
    ways = item.spellings.get(dialect, ())
    way = next((way for way in ways if _said(item, way, dialect, values) is not None), None)
    if way is None:
        return
    shown = f"{item.name} = {short(values[item.name])}"
    if way.note and _said(item, way, dialect, values):
        yield f"{shown} is written as {way.written[0]}; {way.note}"
    if way.lost and not same(_unsaid(item, (way,), values), values[item.name]):
        yield f"{shown} is not written: {way.lost}"


def _contradictions(
    item: Field, keys: Mapping[str, Any], written: Mapping[str, Any]
) -> Iterator[str]:
    for key, value in keys.items():
        if key in written and written[key] != value:
            what = f"{item.name} needs {key} = {short(value)}"
            yield f"{what}, and another field needs {short(written[key])}"


def _keys(item: Field, dialect: Dialect, values: Values) -> dict[str, Any]:
    """The keys of the first way that can say the field's value, none if their absence says it.

    Raises:
        Unspellable: If there is no such way.
    """
    ways = item.spellings.get(dialect, ())
    if _is_idle(item, values):
        return {}
    for way in ways:
        said = _said(item, way, dialect, values)
        if said is not None:
            return said
    if not same(_unsaid(item, ways, values), values[item.name]):
        raise Unspellable
    return {}


def _is_idle(item: Field, values: Values) -> bool:
    """Whether the field beside which this one stands is null, and it with it."""
    return item.beside is not None and values[item.beside] is None


def _unsaid(item: Field, ways: tuple[Spelling, ...], values: Values) -> Any:  # noqa: ANN401
    """The value that no keys at all mean."""
    plain = next((way for way in ways if not way.only and way.holds(values)), None)
    default = plain.default if plain is not None and plain.default is not None else item.default
    if default is None:
        return item
    value = evaluate(default, values)
    return None if isinstance(value, tuple) and item.type == "flags" and all(value) else value


def _said(item: Field, way: Spelling, dialect: Dialect, values: Values) -> dict[str, Any] | None:
    """The keys that say a field's value in one way, None if it cannot."""
    if not way.holds(values):
        return None
    value = values[item.name]
    conditions = {key: wanted[0] for key, wanted in way.only.items() if key not in PRESENCE}
    if way.says is not None:
        return conditions if same(evaluate(way.says, values), value) else None
    if way.lost or (way.sources and way.first is None):
        return {}  # lost, or said by the tensors that are in the file
    if value is None and item.type != "flags":
        return _null(way, dialect, values)
    if way.omit is not None and same(evaluate(way.omit, values), value):
        return {}
    try:
        return conditions | spelled(item, way, dialect, values)
    except Unspellable:
        return None


def _null(way: Spelling, dialect: Dialect, values: Values) -> dict[str, Any] | None:
    source = way.first
    if way.only or source is None:
        return None
    if way.null is not None:
        null = evaluate(way.null, values)
        return {} if null is None else {source.text: null}
    if way.default is None:
        return {}
    # null says something where no key at all would mean a default; GGUF has no null.
    return {source.text: None} if dialect == "hf" else None
