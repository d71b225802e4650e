"""What a recipe is once its TOML has been read.

A recipe is data: how a model is recognised, where each dialect keeps each field of its
configuration, and how each parameter of the module is made from the tensors of each dialect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from maxtool.recipe.names import Pattern
from maxtool.recipe.operations import OPERATIONS
from maxtool.recipe.rename import Rename
from maxtool.recipe.step import Step

Dialect = Literal["hf", "gguf"]
DIALECTS: tuple[Dialect, ...] = ("hf", "gguf")
SCHEMA_VERSION = 1

# A size in a recipe: a number, a field of the configuration, or the product of several.
Size = int | str | tuple[int | str, ...]


@dataclass(frozen=True)
class Source:
    """Where one spelling of a field is read from.

    Attributes:
        kind: "key" (a key's value), "length" (elements of a GGUF array), "rows" (first dimension
            of a tensor), "present" or "absent" (whether a tensor is in the file).
        text: The key, dotted for nested tables of a config.json, or the tensor's name.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Spelling:
    """How one dialect spells a field.

    Attributes:
        sources: Tried in order; the first key is the one that is written.
        also: Keys that are written as well, and must agree when they are there.
        values: Spelled value to the recipe's own value.
        omit: The value that is not written, because its absence says it.
        has_omit: Whether there is such a value.
        default: The value when the key is not there at all, where that differs from null.
        note: What a user should know when the keys are written.
        lost: Why this dialect cannot say the field, where it cannot.
    """

    sources: tuple[Source, ...] = ()
    also: tuple[str, ...] = ()
    values: Mapping[Any, Any] | None = None
    omit: Any = None
    has_omit: bool = False
    default: Any = None
    note: str = ""
    lost: str = ""

    @property
    def written(self) -> tuple[str, ...]:
        """The keys a writer sets."""
        keys = [source.text for source in self.sources if source.kind == "key"]
        return (*keys[:1], *self.also)


@dataclass(frozen=True)
class Default:
    """A field's value when no spelling is there.

    Attributes:
        kind: "value", "field" (same as another field), "quotient" (of two fields), or "none".
        value: The literal value, the field, or the two fields.
    """

    kind: str
    value: Any = None


@dataclass(frozen=True)
class Field:
    """One field of the architecture's configuration."""

    name: str
    type: str
    optional: bool
    default: Default | None
    allowed: tuple[Any, ...]
    spellings: Mapping[Dialect, Spelling]


@dataclass(frozen=True)
class Rule:
    """How one parameter is made from the tensors of one dialect.

    Attributes:
        target: The parameter's name.
        sources: Names of the tensors it is made from.
        steps: What is done to them, sizes not yet resolved.
        over: The index that runs over the tensors of one stack, when there is one.
        part: Which output of a leading split this parameter is.
        tie: The parameter it is the same as, when ``when`` holds.
        when: Field values under which ``tie`` holds.
        lost: Why this dialect has no place for the parameter, where it has none.
    """

    target: Pattern
    sources: tuple[Pattern, ...]
    steps: tuple[Step, ...] = ()
    over: str | None = None
    part: int | None = None
    tie: str | None = None
    when: Mapping[str, Any] | None = None
    lost: str = ""

    def tied(self, values: Mapping[str, Any]) -> bool:
        """Whether the parameter is another one under this configuration."""
        return self.tie is not None and all(
            values.get(field) == value for field, value in (self.when or {}).items()
        )


@dataclass(frozen=True)
class Rules:
    """All rules of one dialect.

    Attributes:
        rules: One for each parameter.
        drop: Names of tensors that carry nothing.
        refuse: Names of tensors that say the model is not supported, with the reason.
        rename: Other spellings of names, applied in order before all else.
    """

    rules: tuple[Rule, ...]
    drop: tuple[Pattern, ...] = ()
    refuse: Mapping[Pattern, str] | None = None
    rename: tuple[Rename, ...] = ()


@dataclass(frozen=True)
class Match:
    """What recognises a model in one dialect: values of keys, and keys that must be there."""

    values: Mapping[str, tuple[Any, ...]]
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tolerance:
    """How far compiled and reference outputs may differ."""

    rtol: float
    atol: float


@dataclass(frozen=True)
class Recipe:
    """One recipe file.

    Attributes:
        name: What ``--recipe`` calls it.
        file: Where it was read from.
        architecture: The class that is built.
        match: What recognises it, by dialect.
        fields: The configuration, by field name.
        expect: Keys that must have one of these values when they are there, by dialect.
        constants: Keys that are always written with this value, by dialect.
        order: The order in which a dialect's keys are written.
        rules: Weight rules, by dialect.
        entries: What to compile: entry to input name to dimensions.
        check: Parity tolerance, by dtype name.
    """

    name: str
    file: Path
    architecture: str
    match: Mapping[Dialect, Match]
    fields: Mapping[str, Field]
    expect: Mapping[Dialect, Mapping[str, tuple[Any, ...]]]
    constants: Mapping[Dialect, Mapping[str, Any]]
    order: Mapping[Dialect, tuple[str, ...]]
    rules: Mapping[Dialect, Rules]
    entries: Mapping[str, Mapping[str, tuple[int | str, ...]]]
    check: Mapping[str, Tolerance]

    @property
    def gguf_architecture(self) -> str:
        """What GGUF calls the architecture: the prefix of its keys."""
        return str(self.constants["gguf"]["general.architecture"])


def resolve_size(size: Size, values: Mapping[str, Any]) -> int:
    """The number a size stands for.

    Args:
        size: A number, a field, or a product of those.
        values: The configuration's fields.
    """
    if isinstance(size, tuple):
        return math.prod(resolve_size(factor, values) for factor in size)
    return int(values[size]) if isinstance(size, str) else size


def resolve_step(step: Step, values: Mapping[str, Any]) -> Step:
    """``step`` with every size as a number."""
    kinds = OPERATIONS[step.op].params
    return Step(step.op, {key: _resolve(kinds[key], step.params[key], values) for key in kinds})


def _resolve(kind: str, value: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if kind == "size":
        return resolve_size(value, values)
    if kind == "sizes":
        return tuple(resolve_size(size, values) for size in value)
    return value
