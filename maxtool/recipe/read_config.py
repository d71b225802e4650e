"""A checkpoint's configuration read into a recipe's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from maxtool.errors import ConfigurationError
from maxtool.recipe.check_keys import KeyCheck
from maxtool.recipe.codecs import CODECS, decoded
from maxtool.recipe.computed import Findings, found_in
from maxtool.recipe.expressions import Undefined, evaluate, same
from maxtool.recipe.fieldtypes import NEEDS, TYPES, typed
from maxtool.recipe.keys import Keys, short, supported
from maxtool.recipe.layer_codecs import MAX_LAYERS
from maxtool.recipe.name_patterns import Pattern, is_among, renamed
from maxtool.recipe.schema import Field, Recipe, Source, Spelling
from maxtool.recipe.text_part import tensors_of, values_of, within
from maxtool.weights import Checkpoint, TensorInfo
from maxtool.weights.quantization_config import QUANTIZATION

IGNORE_HINT = "--ignore-config KEY lets a key pass that you know to change nothing"
# For a field that a dialect has no key for.
NOWHERE = Spelling()


class _Misfit(ValueError):
    """A problem that leaves a field without a value."""


@dataclass(frozen=True)
class ResolvedConfig:
    """A configuration in a recipe's own terms: every field, and notes on what was passed over."""

    values: dict[str, Any]
    notes: list[str]


def resolve_config(
    recipe: Recipe, checkpoint: Checkpoint, *, ignore: frozenset[str] = frozenset()
) -> ResolvedConfig:
    """Read a checkpoint's configuration into the recipe's fields; all that is wrong is one error.

    ``ignore`` names keys to pass over though they are unknown or have an unexpected value.
    """
    recipe = within(recipe, checkpoint)
    reader, check = _read(recipe, checkpoint, ignore)
    if problems := [*reader.problems, *check.problems]:
        raise ConfigurationError(
            f"the configuration does not fit the recipe {recipe.name}",
            file=checkpoint.config_file or checkpoint.path,
            problems=problems,
            hint=IGNORE_HINT if check.can_ignore else None,
        )
    return ResolvedConfig(reader.values, check.notes)


@dataclass(frozen=True)
class Misread:
    """Part of a configuration that a recipe does not understand.

    Attributes:
        unknown: Keys that it does not know, and that may change the model.
        failed: Fields that could not be read.
        problems: Lines on all else that does not fit.
    """

    unknown: list[str]
    failed: set[str]
    problems: list[str]


def misread(recipe: Recipe, checkpoint: Checkpoint) -> Misread:
    """Find what a recipe does not understand of a checkpoint's configuration."""
    reader, check = _read(recipe, checkpoint, frozenset())
    told = {*check.unknown.values()}
    others = [line for line in check.problems if line not in told]
    return Misread([*check.unknown], reader.failed, [*reader.problems, *others])


def _read(
    recipe: Recipe, checkpoint: Checkpoint, ignore: frozenset[str]
) -> tuple[_Reader, KeyCheck]:
    """Read the fields, as far as they can be, and look at the keys that are left."""
    reader = _Reader(recipe, checkpoint, values_of(recipe, Keys.of(checkpoint)))
    for item in recipe.fields.values():
        reader.read(item)
    reasons = {QUANTIZATION: checkpoint.unsupported} if checkpoint.unsupported else {}
    check = KeyCheck(recipe, reader.keys, reader.known, reader.failed, ignore, reasons)
    check.run()
    return reader, check


@dataclass
class _Reader:
    """A reading of the fields: their values so far, and the problems on the way."""

    recipe: Recipe
    checkpoint: Checkpoint
    keys: Keys
    values: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    computed: Findings | None = None

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The checkpoint's tensors by the names that the recipe has for them."""
        tensors = tensors_of(self.recipe, self.checkpoint.tensors)
        return renamed(self.recipe.rules[self.keys.dialect].rename, tensors)

    def read(self, item: Field) -> None:
        """Read one field from the first way of spelling it that fits, or its default."""
        try:
            ways = item.spellings.get(self.keys.dialect, ())
            way = next((way for way in ways if way.holds(self.values)), NOWHERE)
            self.known.update(way.keys)
            if item.type == "flags" and self.values["n_layers"] > MAX_LAYERS:
                layers = self.values["n_layers"]
                raise _Misfit(f"{layers} layers are more than {MAX_LAYERS} ({item.name})")
            entries = list(self._decoded(item, way) if way.codec else self._found(item, way))
            entries = self._from_tensors(item, way, entries)
            if entries:
                self._agreed(item, entries)
            else:
                self._default(item, way)
        except KeyError:  # what it needs has failed, and is reported
            self.failed.add(item.name)
        except Undefined as error:
            self._fail(item, f"{item.name}: {error.what}")
        except _Misfit as error:
            self._fail(item, str(error))

    def _found(self, item: Field, way: Spelling) -> Iterator[tuple[str, Any]]:
        """Values that the keys say, each with its name; else measures of the file."""
        some, switch = False, _is_switch(item, way)
        for source in way.sources:
            fits = source.kind == "key" or not some
            raw = self._raw(source, item, switch=switch) if fits else None
            if raw is not None:
                some = True
                yield source.text, _meaning(item, way, source.text, raw)
        for key in self._beside(way, switch=switch):
            yield key, _meaning(item, way, key, self.keys.get(key, switch=switch))

    def _beside(self, way: Spelling, *, switch: bool) -> list[str]:
        """The keys that must agree, and are there."""
        others = set(way.also) - {source.text for source in way.sources}
        return [key for key in way.also if key in others and self._says(key, switch=switch)]

    def _says(self, key: str, *, switch: bool) -> bool:
        return self.keys.get(key, switch=switch) is not None

    def _decoded(self, item: Field, way: Spelling) -> Iterator[tuple[str, Any]]:
        """The value that a codec makes of the keys, with the name of the key that says it."""
        raws: list[Any] = []
        names: list[tuple[bool, str]] = []  # those with a type of their own come last
        for slot, key_type in zip(way.slots, CODECS[way.codec].keys, strict=True):
            name, raw = self._slot(item, way, slot, switch=key_type == "bool")
            if raw is not None and key_type != "any" and TYPES[key_type](raw) is None:
                raise _Misfit(f"{name} = {short(raw)} is not {NEEDS[key_type]} ({item.name})")
            raws.append(raw)
            if raw is not None:
                names.append((key_type != "any", name))
        last = [*_keys_of(way.slots[-1:]), *(way.also if len(way.slots) == 1 else ())]
        absent = not any(key in self.keys.values for key in last)
        try:
            value = decoded(way, raws, self.values, absent=absent)
        except Undefined as error:
            keys = " and ".join(name for _, name in names) or item.name
            raise _Misfit(f"{keys}: {error.what} ({item.name})") from None
        if value is not None:
            yield min(names, key=lambda name: name[0], default=(True, item.name))[1], value

    def _slot(
        self, item: Field, way: Spelling, slot: tuple[Source, ...], *, switch: bool
    ) -> tuple[str, Any]:
        """The value that all keys of a slot say, and the first of them."""
        also = self._beside(way, switch=switch) if slot is way.slots[0] else []
        keys = [*(key for key in _keys_of((slot,)) if self._says(key, switch=switch)), *also]
        if not keys:
            measured = ((each.text, self.tensors.get(each.text)) for each in slot)
            rows = ((name, tensor.shape[0]) for name, tensor in measured if tensor and tensor.shape)
            return next(rows, ("", None))
        said = {key: self.keys.get(key, switch=switch) for key in keys}
        (first, value), *others = said.items()
        for other, other_value in others:
            if not same(other_value, value):
                found = f"{other} = {short(other_value)} disagrees"
                raise _Misfit(f"{found} with {first} = {short(value)} ({item.name})")
        return first, value

    def _raw(self, source: Source, item: Field, *, switch: bool) -> Any:  # noqa: ANN401
        if source.kind in ("key", "read"):
            return self.keys.get(source.text, switch=switch)
        if source.kind == "write":
            return None
        if source.kind == "length":
            value = self.keys.values.get(source.text)
            return len(value) if isinstance(value, list | np.ndarray) else None
        if item.type == "flags" and source.kind == "present":
            return self._layers_with(source.text)
        if source.kind in ("present", "absent"):
            return is_among(source.text, self.tensors) == (source.kind == "present")
        tensor = self.tensors.get(source.text)
        if source.kind == "rows":
            return tensor.shape[0] if tensor is not None and tensor.shape else None
        return tensor is not None and tensor.encoding is not None

    def _layers_with(self, name: str) -> list[bool]:
        """Return for each layer whether it has a tensor of this name."""
        layers, pattern = range(self.values["n_layers"]), Pattern(name)
        return [pattern.name({"layer": layer}) in self.tensors for layer in layers]

    def _from_tensors(
        self, item: Field, way: Spelling, entries: list[tuple[str, Any]]
    ) -> list[tuple[str, Any]]:
        """Entries with what computed tensors say as a key would, over keys that say the default."""
        if self.computed is None:
            needed = self.recipe.computed[self.keys.dialect]
            self.computed = found_in(needed, self.checkpoint, self.tensors)
        said = self.computed.say(item.name, self.values)
        if said is None:
            return entries
        default = evaluate(item.default, self.values) if item.default else None
        others = [entry for entry in entries if not same(entry[1], default)]
        name, value = said
        if way.codec and len(way.slots) == 1:
            value = decoded(way, [value], self.values, absent=False)
        return others if value is None else [(name, value), *others]

    def _agreed(self, item: Field, entries: list[tuple[str, Any]]) -> None:
        read: list[tuple[str, Any]] = []
        for key, raw in entries:
            try:
                read.append((key, self._typed(item, raw)))
            except ValueError as error:
                raise _Misfit(f"{key} = {short(raw)} is not {error} ({item.name})") from None
        (first, value), *others = read
        self.values[item.name] = value
        for other, other_value in others:
            if not same(other_value, value):
                shown = f"{first} = {short(value)}"
                self._fail(item, f"{other} = {short(other_value)} disagrees with {shown}")
        allowed = tuple(evaluate(each, self.values) for each in item.allowed)
        if allowed and value is not None and value not in allowed:
            shown = f"{first} = {short(entries[0][1])}"
            self._fail(item, f"{shown} is not supported ({supported(allowed)})")

    def _typed(self, item: Field, raw: Any) -> Any:  # noqa: ANN401
        if raw is None:
            return None
        layers = self.values["n_layers"] if item.type == "flags" else None
        return typed(item.type, raw, layers)

    def _default(self, item: Field, way: Spelling) -> None:
        null = any(key in self.keys.values for key in _keys_of(way.slots))
        own = None if null or way.codec else way.default
        default = own or item.default
        if default is None:
            names = " or ".join(source.text for source in way.sources) or item.name
            raise _Misfit(f"{names} is missing ({item.name})")
        value = evaluate(default, self.values)
        if value is None and default.op != "value":
            needs = ", ".join(dict.fromkeys(default.fields()))
            raise _Misfit(f"{item.name} cannot be derived from {needs}")
        try:
            self.values[item.name] = self._typed(item, value)
        except ValueError as error:
            raise _Misfit(f"{item.name} = {short(value)} is not {error}") from None

    def _fail(self, item: Field, problem: str) -> None:
        self.failed.add(item.name)
        self.values.pop(item.name, None)
        self.problems.append(problem)


def _keys_of(slots: Sequence[tuple[Source, ...]]) -> list[str]:
    return [source.key for slot in slots for source in slot if source.key is not None]


def _is_switch(item: Field, way: Spelling) -> bool:
    """Return whether the keys of a way without a codec are true or false."""
    return item.type == "bool" if way.values is None else _are_texts_of_flags(way.values)


def _are_texts_of_flags(values: Mapping[str, Any]) -> bool:
    return not values.keys() - {"true", "false"}


def _meaning(item: Field, way: Spelling, key: str, raw: Any) -> Any:  # noqa: ANN401
    """The recipe's own value for a spelled one; the spelled one itself where there is none."""
    if way.values is None:
        return raw
    if type(raw) is bool:
        return way.values.get(str(raw).lower(), raw)
    if _are_texts_of_flags(way.values):
        raise _Misfit(f"{key} = {short(raw)} is not true or false ({item.name})")
    if type(raw) is int and item.type == "str" and str(raw) not in way.values:
        said = f"{key} = {raw} is not supported ({supported(tuple(way.values))})"
        raise _Misfit(f"{said} ({item.name})")
    # The keys of a TOML table are texts, numbers too.
    return way.values.get(str(raw), raw) if type(raw) in (str, int) else raw
