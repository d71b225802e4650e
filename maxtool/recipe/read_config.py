"""A checkpoint's configuration read into a recipe's fields.

Reading collects every problem: a missing or wrong value, spellings that disagree, a value that is
not supported, a key nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from maxtool.errors import ConfigurationError
from maxtool.recipe.check_keys import KeyCheck
from maxtool.recipe.computed import Findings, found_in
from maxtool.recipe.expressions import Expression, evaluate, same
from maxtool.recipe.fieldtypes import typed
from maxtool.recipe.formulas import Undefined
from maxtool.recipe.keys import Keys, short, supported
from maxtool.recipe.rename import renamed
from maxtool.recipe.schema import (
    MEASURED,
    PRESENCE,
    Dialect,
    Field,
    Recipe,
    Source,
    Spelling,
)
from maxtool.recipe.spell import MAX_LAYERS, meaning
from maxtool.weights import Checkpoint, TensorInfo

IGNORE_HINT = "--ignore-config KEY lets a key pass that you know to change nothing"
# What a key that decides how a field is spelled may hold.
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


@dataclass(frozen=True)
class ResolvedConfig:
    """A configuration in a recipe's own terms.

    Attributes:
        values: Every field of the recipe.
        notes: What was seen and passed over.
    """

    values: dict[str, Any]
    notes: list[str]


def resolve_config(
    recipe: Recipe, checkpoint: Checkpoint, *, ignore: frozenset[str] = frozenset()
) -> ResolvedConfig:
    """Read a checkpoint's configuration into the recipe's fields.

    Args:
        recipe: Says where each field is kept.
        checkpoint: Whose configuration to read.
        ignore: Keys to pass over though they are unknown or have an unexpected value.

    Raises:
        ConfigurationError: If anything does not fit; lists all of it.
    """
    reader = _Reader(recipe, checkpoint, Keys.of(checkpoint).within(recipe.section))
    for item in recipe.fields.values():
        reader.read(item)
    check = KeyCheck(recipe, reader.keys, reader.known, reader.failed, ignore)
    check.run()
    if problems := [*reader.problems, *check.problems]:
        raise ConfigurationError(
            f"the configuration does not fit the recipe {recipe.name}",
            file=checkpoint.config_file or checkpoint.path,
            problems=problems,
            hint=IGNORE_HINT if check.can_ignore else None,
        )
    return ResolvedConfig(reader.values, check.notes)


@dataclass
class _Reader:
    """One reading of the fields: those so far, and what was found on the way."""

    recipe: Recipe
    checkpoint: Checkpoint
    keys: Keys
    values: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    computed: Findings | None = None

    @property
    def dialect(self) -> Dialect:
        """How the checkpoint names its keys."""
        return self.keys.dialect

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The checkpoint's tensors by the names that the recipe has for them."""
        return renamed(self.recipe.rules[self.dialect].rename, self.checkpoint.tensors)

    def read(self, item: Field) -> None:
        """Read one field from its first spelling that is there, or its default."""
        try:
            spelling = self._chosen(item)
            if spelling is not None:
                self.known.update(spelling.keys)
            if problem := self._undecided(item):
                self._fail(item, problem)
                return
            if item.beside is not None and self.values[item.beside] is None:
                self.values[item.name] = None
                return
            if item.type == "flags" and self.values["n_layers"] > MAX_LAYERS:
                layers = self.values["n_layers"]
                self._fail(item, f"{layers} layers are more than {MAX_LAYERS} ({item.name})")
                return
            found = list(self._found(item, spelling)) if spelling is not None else []
            found = [*self._from_tensors(item, found), *found]
            if found:
                self._agreed(item, spelling, found)
            else:
                self._default(item, spelling)
        except KeyError:  # what it needs has failed, and is reported
            self.failed.add(item.name)
        except Undefined as error:
            self._fail(item, f"{item.name}: {error.what}")

    def _chosen(self, item: Field) -> Spelling | None:
        """The first way of spelling the field that fits; all keys that decide it become known."""
        ways = item.spellings.get(self.dialect, ())
        self.known.update(key for way in ways if way.only for key in way.keys)
        return next((way for way in ways if self._fits(way)), None)

    def _undecided(self, item: Field) -> str | None:
        """What is wrong with the type of a key that decides how the field is spelled, if it is."""
        wanted: dict[str, list[Any]] = {}
        for way in item.spellings.get(self.dialect, ()):
            for key in way.conditions:
                wanted.setdefault(key, []).extend(way.only[key])
        for key, values in wanted.items():
            value = self.keys.get(key)
            if value is not None and type(value) not in map(type, values):
                kinds = sorted({_KINDS[type(one)] for one in values})
                return f"{key} = {short(value)} is not {' or '.join(kinds)} ({item.name})"
        return None

    def _fits(self, way: Spelling) -> bool:
        fits = (self._holds(key, wanted) for key, wanted in way.only.items())
        return way.holds(self.values) and all(fits)

    def _holds(self, key: str, wanted: tuple[Any, ...]) -> bool:
        if key in ("has", "lacks"):
            return (self.keys.get(wanted[0]) is None) == (key == "lacks")
        if key in PRESENCE:
            return (wanted[0] in self.tensors) == (key == "present")
        value = self.keys.get(key)
        return any(type(one) is type(value) and one == value for one in wanted)

    def _found(self, item: Field, spelling: Spelling) -> Iterator[tuple[str, Any]]:
        """What the keys say, each with its name; measures of the file where no key says it."""
        if spelling.says is not None:
            yield item.name, evaluate(spelling.says, self.values)
            return
        some = False
        for source in spelling.sources:
            raw = self._raw(source) if source.kind == "key" or not some else None
            if raw is not None:
                some = True
                yield source.text, meaning(spelling, source, raw, self.values)
        read = {source.text for source in spelling.sources}
        for key in spelling.also:
            if key not in read and (raw := self.keys.get(key)) is not None:
                yield key, meaning(spelling, Source("key", key), raw, self.values)

    def _raw(self, source: Source) -> Any:  # noqa: ANN401
        if source.kind in MEASURED:
            return self._measured(source)
        if source.kind != "except":
            return self.keys.get(source.text)
        both = tuple(self.keys.get(key) if key else None for key in (source.text, source.every))
        return None if both == (None, None) else both

    def _measured(self, source: Source) -> Any:  # noqa: ANN401
        tensor = self.tensors.get(source.text)
        if source.kind == "length":
            value = self.keys.values.get(source.text)
            return len(value) if isinstance(value, list | np.ndarray) else None
        if source.kind == "read":
            return self.keys.get(source.text)
        if source.kind == "rows":
            return tensor.shape[0] if tensor is not None and tensor.shape else None
        return (tensor is not None) == (source.kind == "present")

    def _from_tensors(self, item: Field, found: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """What tensors say that follow from the configuration, over keys that say the default."""
        if self.computed is None:
            needed = self.recipe.computed[self.dialect]
            self.computed = found_in(needed, self.checkpoint)
        said = self.computed.say(item.name, self.values)
        if said is not None:
            default = evaluate(item.default, self.values) if item.default else None
            found[:] = [entry for entry in found if not same(entry[1], default)]
            yield said

    def _agreed(self, item: Field, spelling: Spelling | None, found: list[tuple[str, Any]]) -> None:
        null = self._value(spelling.null) if spelling is not None else None
        read: list[tuple[str, Any]] = []
        for key, raw in found:
            try:
                value = None if null is not None and same(raw, null) else self._typed(item, raw)
            except ValueError as error:
                self._fail(item, f"{key} = {short(raw)} is not {error} ({item.name})")
                return
            read.append((key, value))
        (first, value), *others = read
        self.values[item.name] = value
        for other, other_value in others:
            if not same(other_value, value):
                shown = f"{first} = {short(value)}"
                self._fail(item, f"{other} = {short(other_value)} disagrees with {shown}")
        allowed = tuple(evaluate(one, self.values) for one in item.allowed)
        if allowed and value is not None and value not in allowed:
            shown = f"{first} = {short(found[0][1])}"
            self._fail(item, f"{shown} is not supported ({supported(allowed)})")

    def _typed(self, item: Field, raw: Any) -> Any:  # noqa: ANN401
        if raw is None:
            return None
        layers = self.values["n_layers"] if item.type == "flags" else None
        return typed(item.type, raw, layers)

    def _value(self, expression: Expression | None) -> Any:  # noqa: ANN401
        return None if expression is None else evaluate(expression, self.values)

    def _default(self, item: Field, spelling: Spelling | None) -> None:
        sources = spelling.sources if spelling is not None else ()
        null = any(key in self.keys.values for source in sources for key in source.keys)
        own = None if spelling is None or null else spelling.default
        default = own or item.default
        if default is None:
            names = " or ".join(source.text for source in sources) or item.name
            self._fail(item, f"{names} is missing ({item.name})")
            return
        value = evaluate(default, self.values)
        if value is None and default.op != "value":
            needs = ", ".join(dict.fromkeys(default.fields()))
            self._fail(item, f"{item.name} cannot be derived from {needs}")
            return
        try:
            self.values[item.name] = self._typed(item, value)
        except ValueError as error:
            self._fail(item, f"{item.name} = {short(value)} is not {error}")

    def _fail(self, item: Field, problem: str) -> None:
        self.failed.add(item.name)
        self.values.pop(item.name, None)
        self.problems.append(problem)
