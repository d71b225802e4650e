"""Recipes as objects, once their TOML has been read.

A recipe is data: how a model is recognised, where each dialect keeps each field of its
configuration, and how each parameter of the module is made from the tensors of each dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from maxtool.recipe.expressions import Expression
from maxtool.recipe.name_patterns import Pattern
from maxtool.recipe.rule import Rules

Dialect = Literal["hf", "gguf"]
DIALECTS: tuple[Dialect, ...] = ("hf", "gguf")
SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Source:
    """Spelling of a field: a key, or something of the file that says the same.

    Attributes:
        kind: "key" (a key's value), "read" (that of a key which is never written), "length"
            (elements of a GGUF array), "rows" (first dimension of a tensor), "present" or "absent"
            (whether a tensor is in the file).
        text: The key, dotted for nested tables of a config.json, or the tensor's name.
    """

    kind: str
    text: str

    @property
    def key(self) -> str | None:
        """The key it reads; None where it looks at a tensor."""
        return self.text if self.kind in ("key", "read", "length") else None


@dataclass(frozen=True)
class Spelling:
    """Way in which a dialect spells a field.

    Attributes:
        slots: The sources of each value it reads: one, or as many as its codec takes. All sources
            of a slot say the same; the first of kind "key" is written, and all others are only
            looked at where no key is there.
        codec: How the values become the field's: a row of ``codecs.CODECS``, or nothing.
        when: Other fields and the values under which it is this way; of flags, whether any is set.
        also: Keys that are written as well, and must agree when they are there.
        values: Spelled value to the recipe's own value.
        omit: The value that is not written, because its absence says it.
        default: The value when the key is not there at all, where that differs from null. With a
            codec, this one and ``omit`` are the last key's value, not the field's.
        note: Advice to a user when the keys are written.
        lost: Why this dialect cannot say the field, where it cannot.
    """

    slots: tuple[tuple[Source, ...], ...] = ()
    codec: str = ""
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None
    omit: Expression | None = None
    default: Expression | None = None
    note: str = ""
    lost: str = ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources, of one slot after the other."""
        return tuple(source for slot in self.slots for source in slot)

    @property
    def first(self) -> Source | None:
        """The source that a writer sets first."""
        return next((source for source in self.sources if source.kind == "key"), None)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the other fields are such that it is this way."""
        return all(_is_one(values[name], wanted) for name, wanted in self.when.items())

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys it knows."""
        own = [source.key for source in self.sources if source.key is not None]
        return (*own, *self.also)

    @property
    def operands(self) -> Iterator[str]:
        """The other fields that its conditions and formulas need."""
        yield from self.when
        for expression in (self.omit, self.default):
            yield from expression.fields() if expression else ()


def _is_one(value: Any, wanted: tuple[Any, ...]) -> bool:  # noqa: ANN401
    """Return whether a value is one of those wanted; of flags, null or not, whether any is set."""
    if isinstance(value, tuple) or value is None:
        return any(flag is (value is None or any(value)) for flag in wanted)
    return value in wanted


@dataclass(frozen=True)
class Field:
    """Field of the architecture's configuration.

    Attributes:
        name: The architecture's name for it.
        type: A row of ``fieldtypes.TYPES``.
        optional: Whether it may be null.
        default: Its value when no spelling is there; None if one must be.
        allowed: The values that are supported, as formulas; none if all are.
        spellings: By dialect, the ways it is spelled; the first that fits holds.
    """

    name: str
    type: str
    optional: bool
    default: Expression | None
    allowed: tuple[Expression, ...]
    spellings: Mapping[Dialect, tuple[Spelling, ...]]


@dataclass(frozen=True)
class Computed:
    """A tensor that says something of the configuration, and is not a parameter.

    Attributes:
        tensor: Its name.
        codec: How it follows from fields, and they from it: a row of ``computed.TENSOR_CODECS``.
        field: The field it holds, for the codec that takes one.
        when: Field values under which there is such a tensor.
    """

    tensor: str
    codec: str
    field: str
    when: Mapping[str, Any]


@dataclass(frozen=True)
class Match:
    """Keys that recognise a model in one dialect, by their values or by being there.

    A key of 0 is not there: GGUF says of a dense model so that it has no experts.
    """

    values: Mapping[str, tuple[Any, ...]]
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Aside:
    """Keys and tensors of a part of the model that is left out.

    Attributes:
        note: What is said of it.
        keys: Configuration keys, each with all below it.
        tensors: Names of tensors.
    """

    note: str = ""
    keys: frozenset[str] = frozenset()
    tensors: tuple[Pattern, ...] = ()


@dataclass(frozen=True)
class Tolerance:
    """Largest differences of compiled and reference outputs."""

    rtol: float
    atol: float


@dataclass(frozen=True)
class Recipe:
    """Recipe file.

    Attributes:
        name: What ``--recipe`` calls it.
        file: Where it was read from.
        architecture: The class that is built.
        section: The table of a config.json that describes the model, when it is not the whole.
        match: What recognises it, by dialect.
        tables: The names that a table of a config.json has had, by what the recipe calls it.
        fields: The configuration, by field name.
        expect: Keys that must have one of these values when they are there, by dialect.
        constants: Keys that are always written with this value, by dialect.
        order: The order in which a dialect's keys are written.
        computed: Tensors that follow from the configuration, by dialect.
        aside: What is left out of a file, by dialect.
        rules: Weight rules, by dialect.
        entries: What to compile: entry to input name to dimensions.
        check: Parity tolerance, by dtype name.
    """

    name: str
    file: Path
    architecture: str
    section: str
    match: Mapping[Dialect, Match]
    tables: Mapping[str, tuple[str, ...]]
    fields: Mapping[str, Field]
    expect: Mapping[Dialect, Mapping[str, tuple[Any, ...]]]
    constants: Mapping[Dialect, Mapping[str, Any]]
    order: Mapping[Dialect, tuple[str, ...]]
    computed: Mapping[Dialect, tuple[Computed, ...]]
    aside: Mapping[Dialect, Aside]
    rules: Mapping[Dialect, Rules]
    entries: Mapping[str, Mapping[str, tuple[int | str, ...]]]
    check: Mapping[str, Tolerance]
