"""A recipe's fields written as the keys of a dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.recipe.codec_type import Unspellable
from maxtool.recipe.codecs import encoded, implied
from maxtool.recipe.computed import said_by_tensors
from maxtool.recipe.expressions import Undefined, Values, evaluate, same
from maxtool.recipe.keys import short
from maxtool.recipe.schema import Dialect, Field, Recipe, Spelling

NAMES: Mapping[Dialect, str] = {"hf": "Hugging Face", "gguf": "GGUF"}


def written_keys(
    recipe: Recipe, dialect: Dialect, values: Values, extra: Values | None = None
) -> dict[str, Any]:
    """The keys that say ``values``, every field of a recipe, in a dialect, in the recipe's order.

    The recipe may place ``extra`` keys among its own. Values that the dialect has no way to say
    are an error, which lists them all.
    """
    if not recipe.knows(dialect):
        raise ConfigurationError(f"{NAMES[dialect]} has no form of {recipe.name} models")
    written = {**recipe.constants[dialect], **(extra or {})}
    problems: list[str] = []
    whole, beside = said_by_tensors(recipe.computed[dialect], values)
    for item in recipe.fields.values():
        if item.name in whole:
            continue
        try:
            keys = _keys(item, dialect, values)
        except Unspellable:
            if item.name not in beside:
                shown = f"{item.name} = {short(values[item.name])}"
                problems.append(f"{shown} has no spelling in {dialect}")
            continue
        except Undefined as error:
            problems.append(f"{item.name}: {error.what}")
            continue
        problems += _contradictions(item, keys, written)
        written |= keys
    if problems:
        what = f"the configuration cannot be written for {dialect}"
        raise ConfigurationError(what, problems=problems)
    return dict(sorted(written.items(), key=_order(recipe, dialect, extra or {})))


def _order(recipe: Recipe, dialect: Dialect, extra: Values) -> Callable[[tuple[str, Any]], int]:
    """Sort key: the recipe's order; else constants and extra keys first, others last."""
    keys = recipe.order.get(dialect, ())
    order = {key: index for index, key in enumerate(keys)}
    first = dict.fromkeys({**recipe.constants[dialect], **extra}, -1)
    return lambda entry: {**first, **order}.get(entry[0], len(keys))


def written_notes(recipe: Recipe, dialect: Dialect, values: Values) -> list[str]:
    """Notes to the user on the keys that :func:`written_keys` gives."""
    said, _ = said_by_tensors(recipe.computed[dialect], values)
    items = [item for item in recipe.fields.values() if item.name not in said]
    return [note for item in items for note in _notes(item, dialect, values)]


def _notes(item: Field, dialect: Dialect, values: Values) -> Iterator[str]:
    """Notes to the user on one field."""
    for way in item.spellings.get(dialect, ()):
        keys = _said(item, way, dialect, values)
        if keys is None:
            continue
        shown = f"{item.name} = {short(values[item.name])}"
        if way.note and keys:
            yield f"{shown} is written as {next(iter(keys))}; {way.note}"
        if way.lost and not same(_unsaid(item, (way,), values), values[item.name]):
            yield f"{shown} is not written: {way.lost}"
        return


def _contradictions(item: Field, keys: Values, written: Values) -> Iterator[str]:
    for key, value in keys.items():
        if key in written and written[key] != value:
            what = f"{item.name} needs {key} = {short(value)}"
            yield f"{what}, and another field needs {short(written[key])}"


def _keys(item: Field, dialect: Dialect, values: Values) -> dict[str, Any]:
    """The keys of the first way that can say the field's value, none if their absence says it."""
    ways = item.spellings.get(dialect, ())
    for way in ways:
        said = _said(item, way, dialect, values)
        if said is not None:
            return said
    if not same(_unsaid(item, ways, values), values[item.name]):
        raise Unspellable
    return {}


def _unsaid(item: Field, ways: tuple[Spelling, ...], values: Values) -> Any:  # noqa: ANN401
    """The value that no keys at all mean."""
    way = next((way for way in ways if way.holds(values)), None)
    own = None if way is None else implied(way, way.default, values)
    if own is None and item.default is None:
        return item
    value = evaluate(item.default, values) if own is None and item.default is not None else own
    return None if isinstance(value, tuple) and item.type == "flags" and all(value) else value


def _said(item: Field, way: Spelling, dialect: Dialect, values: Values) -> dict[str, Any] | None:
    """The keys that say a field's value in one way, None if it cannot."""
    value = values[item.name]
    if not way.holds(values):
        return None
    try:
        if way.lost:
            return {}
        if way.codec:
            return encoded(way, _written_out(item, values), values)
        if way.first is None:  # the tensors in the file give it
            _spelled(way, value)
            return {} if way.sources else None
        if value is None and item.type != "flags":
            # null says something where no key at all would mean a default; GGUF has no null.
            null = {way.first.text: None} if dialect == "hf" else None
            return {} if way.default is None else null
        if way.omit is not None and same(evaluate(way.omit, values), value):
            return {}
        raw = _raw(item, way, dialect, values)
    except Unspellable:
        return None
    return {way.first.text: raw} | dict.fromkeys(way.also, raw)


def _written_out(item: Field, values: Values) -> Any:  # noqa: ANN401
    """The field's value; flags that are all set, one by one."""
    value = values[item.name]
    return (True,) * values["n_layers"] if value is None and item.type == "flags" else value


def _raw(item: Field, way: Spelling, dialect: Dialect, values: Values) -> Any:  # noqa: ANN401
    value = _written_out(item, values)
    if item.type == "flags":
        return [int(flag) for flag in value] if dialect == "hf" else list(value)
    return list(value) if item.type in LISTS else _spelled(way, value)


def _spelled(way: Spelling, value: Any) -> Any:  # noqa: ANN401
    """The spelled value for one of the recipe's own; Unspellable if there is none."""
    if way.values is None:
        return value
    for text, own in way.values.items():
        if type(own) is type(value) and own == value:
            return int(text) if text.isdecimal() else FLAGS.get(text, text)
    raise Unspellable


LISTS = ("ints", "counts", "floats", "reals", "texts", "bools")
FLAGS = {"true": True, "false": False}
