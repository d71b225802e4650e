"""What a recipe is once its TOML has been read.

A recipe is data: how a model is recognised, where each dialect keeps each field of its
configuration, and how each parameter of the module is made from the tensors of each dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from maxtool.recipe.expressions import Expression
from maxtool.recipe.names import Pattern
from maxtool.recipe.rule import Rules

Dialect = Literal["hf", "gguf"]
DIALECTS: tuple[Dialect, ...] = ("hf", "gguf")
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Source:
    """Where one spelling of a field is read from.

    Attributes:
        kind: "key" (a key's value); for flags "period" (a key that says which layers are not set:
            every n-th), "from" (which is the first that is set) or "except" (a list of those that
            are not); "length" (elements of a GGUF array), "rows" (first dimension of a tensor),
            "present" or "absent" (whether a tensor is in the file).
        text: The key, dotted for nested tables of a config.json, or the tensor's name.
        every: With "except", a key that sets only every n-th layer besides.
    """

    kind: str
    text: str
    every: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it reads, none when it looks at tensors."""
        if self.kind in MEASURED:
            return (self.text,) if self.kind in ("length", "read") else ()
        return (self.text, self.every) if self.every else (self.text,)


# Read from what is in the file where no key says the value, and never written.
MEASURED = frozenset({"read", "length", "rows", "present", "absent"})


@dataclass(frozen=True)
class Spelling:
    """One way in which a dialect spells a field.

    Attributes:
        only: Keys and the values under which it is this way; ``present`` and ``absent`` name
            tensors instead, ``has`` and ``lacks`` a key that is there, or is not.
        when: Other fields and the values under which it is this way; of flags, whether any is set.
        says: What the field then is, without any key of its own.
        sources: Tried in order; the first that is no measure is the one that is written.
        also: Keys that are written as well, and must agree when they are there.
        values: Spelled value to the recipe's own value; of a list, that of each item.
        convert: How the spelled number becomes the field's: a row of ``spell.CONVERSIONS``, and the
            field it takes besides.
        omit: The value that is not written, because its absence says it.
        default: The value when the key is not there at all, where that differs from null.
        null: What is written for null, and read as null.
        note: What a user should know when the keys are written.
        lost: Why this dialect cannot say the field, where it cannot.
    """

    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    says: Expression | None = None
    sources: tuple[Source, ...] = ()
    also: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None
    convert: tuple[str, str] | None = None
    omit: Expression | None = None
    default: Expression | None = None
    null: Expression | None = None
    note: str = ""
    lost: str = ""

    @property
    def first(self) -> Source | None:
        """The source that a writer sets."""
        return next((source for source in self.sources if source.kind not in MEASURED), None)

    @property
    def written(self) -> tuple[str, ...]:
        """The keys a writer may set."""
        own = self.first.keys if self.first else ()
        return (*own, *self.also, *self.conditions)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The keys that decide whether the field is spelled this way."""
        return tuple(key for key in self.only if key not in PRESENCE)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the other fields are such that it is this way."""
        return all(_is_one(values[name], wanted) for name, wanted in self.when.items())

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key it knows."""
        own = [key for source in self.sources for key in source.keys]
        return (*own, *self.also, *self.conditions)

    @property
    def operands(self) -> Iterator[str]:
        """The other fields it needs."""
        yield from self.when
        yield from filter(None, self.convert[1:] if self.convert else ())
        for expression in (self.says, self.omit, self.default, self.null):
            yield from expression.fields() if expression else ()


def _is_one(value: Any, wanted: tuple[Any, ...]) -> bool:  # noqa: ANN401
    """Whether a value is one of those wanted; of flags, null or not, whether any is set."""
    if isinstance(value, tuple) or value is None:
        some = value is None or any(value)
        return any(one is some for one in wanted)
    return value in wanted


# In ``Spelling.only``, these ask whether a tensor is in the file or not, and whether a key is.
PRESENCE = ("present", "absent", "has", "lacks")


@dataclass(frozen=True)
class Field:
    """One field of the architecture's configuration.

    Attributes:
        name: The architecture's name for it.
        type: A row of ``fieldtypes.TYPES``.
        optional: Whether it may be null.
        default: Its value when no spelling is there; None if one must be.
        allowed: The values that are supported, as formulas; none if all are.
        beside: The field without which it is null, whatever the keys say.
        spellings: By dialect, the ways it is spelled; the first that fits holds.
    """

    name: str
    type: str
    optional: bool
    default: Expression | None
    allowed: tuple[Expression, ...]
    beside: str | None
    spellings: Mapping[Dialect, tuple[Spelling, ...]]


@dataclass(frozen=True)
class Computed:
    """A tensor that says something of the configuration, and is no parameter.

    Attributes:
        tensor: Its name.
        formula: How it follows from fields, and they from it: a row of ``computed.FORMULAS``.
        field: The field it holds, for the formula that takes one.
        when: Field values under which there is such a tensor.
    """

    tensor: str
    formula: str
    field: str
    when: Mapping[str, Any]


@dataclass(frozen=True)
class Match:
    """What recognises a model in one dialect: values of keys, and keys that are there.

    A key of 0 is not there: GGUF says of a dense model so that it has no experts.
    """

    values: Mapping[str, tuple[Any, ...]]
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Aside:
    """What describes a part of the model that is left out.

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
