"""Recipes as objects, once their TOML has been read."""

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
# In each dialect, the key that names the kind of model.
KINDS: Mapping[Dialect, str] = {"hf": "model_type", "gguf": "general.architecture"}


@dataclass(frozen=True)
class Source:
    """Spelling of a field: a key, or something of the file that says the same.

    The kinds are "key" (a key's value), "read" (that of a key which is never written), "write" (a
    key that is written, and never read), "length" (elements of a GGUF array), "rows" (first
    dimension of a tensor), "present" and "absent" (whether a tensor is in the file), "blocks"
    (whether its numbers are block-quantized there).
    """

    kind: str
    text: str  # the key, dotted for nested tables of a config.json, or the tensor's name

    @property
    def key(self) -> str | None:
        """The key it reads; None where it looks at a tensor."""
        return self.text if self.kind in ("key", "read", "write", "length") else None


@dataclass(frozen=True)
class Spelling:
    """Way in which a dialect spells a field.

    There are as many slots as its codec takes values, or one. All sources of a slot say the same;
    the first of kind "key" is written, and others are only looked at where no key is there. With a
    codec, ``omit`` and ``default`` are the last key's value, not the field's.
    """

    slots: tuple[tuple[Source, ...], ...] = ()
    codec: str = ""  # how the values become the field's: a row of codecs.CODECS, or nothing
    # Other fields, and the values under which it is this way; of flags, whether any is set.
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # keys written as well, which must agree when they are there
    values: Mapping[str, Any] | None = None  # spelled value to the recipe's own
    omit: Expression | None = None  # the value that is not written, as absence says it
    default: Expression | None = None  # when no key is there, where that differs from null
    note: str = ""  # advice to a user when the keys are written
    lost: str = ""  # why this dialect cannot say the field, where it cannot

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources, of one slot after the other."""
        return tuple(source for slot in self.slots for source in slot)

    @property
    def first(self) -> Source | None:
        """The source that a writer sets first."""
        return next((source for source in self.sources if source.kind in ("key", "write")), None)

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
    """Field of the architecture's configuration."""

    name: str
    type: str  # a row of fieldtypes.TYPES
    optional: bool  # whether it may be null
    default: Expression | None  # when no spelling is there; None if one must be
    allowed: tuple[Expression, ...]  # the values that are supported; none if all are
    spellings: Mapping[Dialect, tuple[Spelling, ...]]  # the first that fits holds

    @property
    def ways(self) -> list[Spelling]:
        """The ways it is spelled, of all dialects."""
        return [way for ways in self.spellings.values() for way in ways]


@dataclass(frozen=True)
class Computed:
    """A tensor that says something of the configuration, and is not a parameter."""

    tensor: str
    codec: str  # how it follows from fields, and they from it: a row of computed.TENSOR_CODECS
    field: str  # what it holds, for the codec that takes one
    when: Mapping[str, Any]  # field values under which there is such a tensor


@dataclass(frozen=True)
class Match:
    """Keys that recognise a model in one dialect, by their values or by being there; and tensors.

    A key of 0 is not there: GGUF says of a dense model so that it has no experts. Tensors are
    "present", "absent" or "blocks" by the names that the file has.
    """

    values: Mapping[str, tuple[Any, ...]]
    requires: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Aside:
    """Keys, with all below them, and tensors of a part of the model that is left out."""

    note: str = ""
    keys: frozenset[str] = frozenset()
    tensors: tuple[Pattern, ...] = ()


@dataclass(frozen=True)
class TextPart:
    """The language model of a checkpoint of several parts, of which no recipe has the whole."""

    keys: Mapping[str, Any]  # the configuration of the language model, dotted if nested
    others: frozenset[str]  # tensors of other parts
    note: str  # what is read, and what is left out
    is_found: bool  # whether its tensors are below a prefix that is known


@dataclass(frozen=True)
class Tolerance:
    """Largest differences of compiled and reference outputs."""

    rtol: float
    atol: float


@dataclass(frozen=True)
class Recipe:
    """Recipe file."""

    name: str
    file: Path
    architecture: str  # the class that is built
    section: str  # the table of a config.json that describes the model, when it is not the whole
    language_model: str  # the recipe of that part, by which a dialect without the whole is written
    match: Mapping[Dialect, Match]
    tables: Mapping[str, tuple[str, ...]]  # the names that a table of a config.json has had
    fields: Mapping[str, Field]
    expect: Mapping[Dialect, Mapping[str, tuple[Any, ...]]]  # keys, and their values if there
    constants: Mapping[Dialect, Mapping[str, Any]]  # keys that are always written
    order: Mapping[Dialect, tuple[str, ...]]  # of the keys that are written
    computed: Mapping[Dialect, tuple[Computed, ...]]
    aside: Mapping[Dialect, Aside]
    rules: Mapping[Dialect, Rules]
    entries: Mapping[str, Mapping[str, tuple[int | str, ...]]]  # to inputs, and their dimensions
    check: Mapping[str, Tolerance]  # by the dtype's name
    text_part: TextPart | None = None  # of one that reads a part of this checkpoint alone

    def knows(self, dialect: Dialect) -> bool:
        """Return whether the dialect has a form of such models."""
        return bool(self.rules[dialect].rules or self.constants[dialect])
