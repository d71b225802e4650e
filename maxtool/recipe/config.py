"""A checkpoint's configuration read into a recipe's fields, and fields written as a dialect's keys.

Both directions go by the spellings of ``[config]``. Reading collects every problem: a missing or
wrong value, spellings that disagree, a value that is not supported, a key nobody knows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from maxtool.errors import ConfigurationError
from maxtool.recipe.inert import INERT, NEVER_IGNORED, covered
from maxtool.recipe.rename import renamed
from maxtool.recipe.schema import Dialect, Field, Recipe, Source, Spelling
from maxtool.weights import Checkpoint, TensorInfo

IGNORE_HINT = "--ignore-config KEY lets a key pass that you know to change nothing"


@dataclass(frozen=True)
class ResolvedConfig:
    """A configuration in a recipe's own terms.

    Attributes:
        values: Every field of the recipe.
        notes: What was seen and passed over.
    """

    values: dict[str, Any]
    notes: list[str]


class Keys:
    """A configuration as flat keys, nested ones dotted, values as plain Python ones.

    Args:
        dialect: Whose keys they are.
        values: Key to value.
    """

    def __init__(self, dialect: Dialect, values: Mapping[str, Any]) -> None:
        self.dialect = dialect
        self.values = values

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Keys:
        """The keys of config.json, or of a GGUF file's metadata."""
        if checkpoint.format == "gguf":
            return cls("gguf", {key: _plain(value) for key, value in checkpoint.metadata.items()})
        return cls("hf", dict(_leaves("", checkpoint.config or {})))

    def get(self, key: str) -> Any:  # noqa: ANN401
        """The key's value, arrays as tuples; None where it is null or missing."""
        value = self.values.get(key)
        return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


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
    keys = Keys.of(checkpoint)
    reader = _Reader(recipe, checkpoint, keys)
    for item in recipe.fields.values():
        reader.read(item)
    reader.check_expected(ignore)
    reader.check_unknown(ignore)
    if reader.problems:
        raise ConfigurationError(
            f"the configuration does not fit the recipe {recipe.name}",
            file=checkpoint.config_file or checkpoint.path,
            problems=reader.problems,
            hint=IGNORE_HINT if reader.can_ignore else None,
        )
    return ResolvedConfig(reader.values, reader.notes)


def written_keys(
    recipe: Recipe,
    dialect: Dialect,
    values: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The keys that say ``values`` in a dialect, constants first, then in the recipe's order.

    Args:
        recipe: Says how each field is spelled.
        dialect: Whose keys to write.
        values: Every field of the recipe.
        extra: Keys that the recipe's order may place among its own.

    Raises:
        ConfigurationError: If the dialect has no way to say a value; lists all of them.
    """
    written = dict(extra or {})
    problems: list[str] = []
    for item, spelling in _spellings(recipe, dialect):
        value = values[item.name]
        if not spelling.sources and not spelling.lost and not _is_default(item, value, values):
            problems.append(f"{item.name} = {value!r} has no spelling in {dialect}")
        elif _is_written(spelling, value):
            written |= dict.fromkeys(spelling.written, _spelled(spelling, value))
    if problems:
        raise ConfigurationError(
            f"the configuration cannot be written for {dialect}", problems=problems
        )
    order = {key: index for index, key in enumerate(recipe.order.get(dialect, ()))}
    ordered = sorted(written, key=lambda key: order.get(key, len(order)))
    return {**recipe.constants[dialect], **{key: written[key] for key in ordered}}


def written_notes(recipe: Recipe, dialect: Dialect, values: Mapping[str, Any]) -> list[str]:
    """What a user should know of the keys that :func:`written_keys` gives."""
    spellings = list(_spellings(recipe, dialect))
    notes = [
        f"{item.name} = {values[item.name]} is written as {spelling.written[0]}; {spelling.note}"
        for item, spelling in spellings
        if spelling.note and values[item.name] is not None
    ]
    return notes + [
        f"{item.name} = {values[item.name]} is not written: {spelling.lost}"
        for item, spelling in spellings
        if spelling.lost and values[item.name] not in (None, spelling.default)
    ]


def _spellings(recipe: Recipe, dialect: Dialect) -> Iterator[tuple[Field, Spelling]]:
    for item in recipe.fields.values():
        yield item, item.spellings.get(dialect, Spelling())


@dataclass
class _Reader:
    """One reading of a configuration: the fields so far, and what was found on the way."""

    recipe: Recipe
    checkpoint: Checkpoint
    keys: Keys
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    can_ignore: bool = False
    known: set[str] = field(default_factory=set)

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The checkpoint's tensors by the names that the recipe has for them."""
        return renamed(self.recipe.rules[self.keys.dialect].rename, self.checkpoint.tensors)

    def read(self, item: Field) -> None:
        """Read one field from its first spelling that is there, or its default."""
        spelling = item.spellings.get(self.keys.dialect, Spelling())
        found = [(key, value) for key, value in self._found(spelling) if value is not None]
        if not found:
            self._default(item, spelling)
            return
        (key, value), *others = found
        self._store(item, key, value)
        for other, found_value in others:
            self._agree(item, spelling, (key, value), (other, found_value))

    def check_expected(self, ignore: frozenset[str]) -> None:
        """Note every key whose value is none of those the recipe expects."""
        for key, allowed in self.recipe.expect[self.keys.dialect].items():
            value = self.keys.get(key)
            if value is None or value in allowed:
                continue
            if key in ignore:
                self.notes.append(f"{key} = {_short(value)} is ignored as asked")
                continue
            self.can_ignore = True
            self.problems.append(
                f"{key} = {_short(value)} is not supported ({_listed(allowed)} is)"
            )

    def check_unknown(self, ignore: frozenset[str]) -> None:
        """Note every key that neither the recipe nor the list of inert keys knows."""
        self.known = self._known()
        for key in self.keys.values:
            if covered(key, NEVER_IGNORED[self.keys.dialect]):
                self._never(key, self.keys.get(key))
            elif key not in self.known and not covered(key, INERT[self.keys.dialect]):
                self._unknown(key, self.keys.get(key), ignored=covered(key, ignore))

    def _found(self, spelling: Spelling) -> Iterator[tuple[str, Any]]:
        for source in spelling.sources:
            if source.kind == "key":
                raw = self.keys.get(source.text)
                yield source.text, raw if raw is None else _meaning(spelling, raw)
        for key in spelling.also:
            if key not in {source.text for source in spelling.sources}:
                yield key, self.keys.get(key)
        for source in spelling.sources:
            if source.kind != "key" and not any(
                self.keys.get(key) is not None for key in spelling.written
            ):
                yield source.text, self._measured(source)

    def _measured(self, source: Source) -> Any:  # noqa: ANN401
        tensor = self.tensors.get(source.text)
        if source.kind == "length":
            value = self.keys.values.get(source.text)
            return len(value) if isinstance(value, list | np.ndarray) else None
        if source.kind == "rows":
            return tensor.shape[0] if tensor is not None and tensor.shape else None
        return (tensor is not None) == (source.kind == "present")

    def _default(self, item: Field, spelling: Spelling) -> None:
        null = any(source.text in self.keys.values for source in spelling.sources)
        if spelling.default is not None and not null:
            self.values[item.name] = spelling.default
            return
        if item.default is None:
            names = " or ".join(source.text for source in spelling.sources)
            self._fail(item, f"{names} is missing ({item.name})")
            return
        try:
            value = _default_value(item, self.values)
        except KeyError:  # what it derives from has failed, and is reported
            return
        if value is None and item.default.kind != "none":
            self._fail(item, f"{item.name} cannot be derived from {_listed(item.default.value)}")
            return
        self.values[item.name] = value

    def _store(self, item: Field, key: str, raw: Any) -> None:  # noqa: ANN401
        value = _typed(item.type, raw)
        if value is None:
            self._fail(item, f"{key} = {_short(raw)} is not {NEEDS[item.type]} ({item.name})")
        elif item.allowed and value not in item.allowed:
            self._fail(item, f"{key} = {_short(raw)} is not supported ({_listed(item.allowed)} is)")
        else:
            self.values[item.name] = value

    def _agree(
        self, item: Field, spelling: Spelling, first: tuple[str, Any], other: tuple[str, Any]
    ) -> None:
        measured = {source.text for source in spelling.sources if source.kind != "key"}
        if other[0] not in measured and first[0] not in measured and other[1] != first[1]:
            self._fail(
                item,
                f"{other[0]} = {_short(other[1])} disagrees with {first[0]} = {_short(first[1])}",
            )

    def _fail(self, item: Field, problem: str) -> None:
        self.failed.add(item.name)
        self.problems.append(problem)

    def _known(self) -> set[str]:
        dialect = self.keys.dialect
        spellings = [
            f.spellings[dialect] for f in self.recipe.fields.values() if dialect in f.spellings
        ]
        keys = {source.text for spelling in spellings for source in spelling.sources}
        keys |= {key for spelling in spellings for key in spelling.also}
        return keys | set(self.recipe.expect[dialect]) | set(self.recipe.constants[dialect])

    def _never(self, key: str, value: Any) -> None:  # noqa: ANN401
        if value is not None:
            self.problems.append(f"{key} = {_short(value)} is not supported, and never ignored")

    def _unknown(self, key: str, value: Any, *, ignored: bool) -> None:  # noqa: ANN401
        if self._beside_failure(key) or (value is None and self._holds_known(key)):
            return
        if ignored:
            self.notes.append(f"{key} = {_short(value)} is ignored as asked")
        elif value is None or value is False or value in ({}, []):
            self.notes.append(f"{key} = {_short(value)} is unknown, and off")
        else:
            self.can_ignore = True
            self.problems.append(f"{key} = {_short(value)} is unknown")

    def _holds_known(self, key: str) -> bool:
        """Whether the key is a table of known keys: null says no more than their absence."""
        return any(name.startswith(f"{key}.") for name in self.known)

    def _beside_failure(self, key: str) -> bool:
        """Whether the key only details a table whose main key has failed already."""
        if self.keys.dialect == "gguf" or "." not in key:
            return False
        table = key.rpartition(".")[0]
        return any(
            source.text.rpartition(".")[0] == table and self.keys.get(source.text) is not None
            for name in self.failed
            for source in self.recipe.fields[name].spellings["hf"].sources
        )


def _default_value(item: Field, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The default, or None when a quotient has a rest; KeyError when a field is not known yet."""
    default = item.default
    if default is None or default.kind == "none":
        return None
    if default.kind == "value":
        return default.value
    operands = [values[name] for name in default.value]
    if default.kind == "field":
        return operands[0]
    quotient, rest = divmod(operands[0], operands[1])
    return None if rest else quotient


def _is_default(item: Field, value: Any, values: Mapping[str, Any]) -> bool:  # noqa: ANN401
    return item.default is not None and value == _default_value(item, values)


def _meaning(spelling: Spelling, raw: Any) -> Any:  # noqa: ANN401
    """The recipe's own value for a spelled one; the spelled one itself when there is none."""
    values = spelling.values  # the keys of a TOML table are texts, numbers too
    return values.get(str(raw), raw) if values is not None and type(raw) in (str, int) else raw


def _is_written(spelling: Spelling, value: Any) -> bool:  # noqa: ANN401
    if value is None:  # null says something where no key at all would mean a default
        return spelling.default is not None
    return not (spelling.has_omit and value == spelling.omit)


def _spelled(spelling: Spelling, value: Any) -> Any:  # noqa: ANN401
    for spelled, meaning in (spelling.values or {}).items():
        if meaning == value:
            return int(spelled) if spelled.isdecimal() else spelled
    return value


def _typed(kind: str, value: Any) -> Any:  # noqa: ANN401
    """``value`` as the type, or None when it is not one."""
    if kind == "float":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if number and 0 < value <= sys.float_info.max else None
    if kind == "int":
        return value if type(value) is int and 0 < value < 1 << 40 else None
    return value if type(value) is {"bool": bool, "str": str}[kind] else None


NEEDS = {
    "int": "a positive integer",
    "float": "a positive number",
    "bool": "true or false",
    "str": "a text",
}


def _leaves(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        table_inside = isinstance(value, dict) and value and len(name) <= MAX_PREFIX
        if table_inside and not covered(name, WHOLE):
            yield from _leaves(f"{name}.", value)
        else:
            yield name, value


# Tables below a longer key stay whole: their leaves would repeat it, and nest without end.
MAX_PREFIX = 100
# Reported as one key each, not leaf by leaf.
WHOLE = INERT["hf"] | NEVER_IGNORED["hf"]


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A NumPy scalar as a Python one; a float32 as the shortest decimal that stands for it."""
    if isinstance(value, float | np.floating):
        return float(str(np.float32(value)))
    return value.item() if isinstance(value, np.generic) else value


def _short(value: Any) -> str:  # noqa: ANN401
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply to be shown"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(values: tuple[Any, ...]) -> str:
    return ", ".join(str(value) for value in values)
