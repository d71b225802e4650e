"""Fields of a recipe's TOML: their types, their defaults, and how each dialect spells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maxtool.recipe import expressions
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.expressions import NULL, Expression
from maxtool.recipe.fieldtypes import TYPES
from maxtool.recipe.old_words import replaced
from maxtool.recipe.problems import Problems, Table
from maxtool.recipe.schema import DIALECTS, Field, Source, Spelling

Tables = Mapping[str, tuple[str, ...]]

# Those that a codec is given the value of.
CODED = ("key", "rows")
SOURCE_KINDS = ("read", "write", "length", "rows", "present", "absent", "blocks")
FIELD_KEYS = frozenset({"type", "optional", "default", "allowed", *DIALECTS})
SPELLING_KEYS = frozenset(
    {"keys", "codec", "also", "values", "when", "omit", "default", "note", "lost"},
)


def fields(table: Table, tables: Tables, problems: Problems) -> dict[str, Field]:
    """Parse ``config``; ``{NAME}`` at the beginning of a key stands for a row of ``tables``."""
    return {name: _field(name, value, tables, problems) for name, value in table.items()}


def many(value: object) -> tuple[Any, ...]:
    """A list as a tuple, anything else as one of one item."""
    return tuple(value) if isinstance(value, list) else (value,)


def _field(name: str, value: object, tables: Tables, problems: Problems) -> Field:
    if not isinstance(value, dict):
        return _constant(name, value, problems)
    where = f"config.{name}"
    problems.unknown(where, value, FIELD_KEYS)
    kind = value.get("type")
    if kind not in TYPES:
        problems.add(where, f"type {kind!r} is not one of {', '.join(TYPES)}")
    optional = value.get("optional", False) is True
    allowed = many(value["allowed"]) if "allowed" in value else ()
    default = _expression(where, value, "default", problems)
    ways = [_expression(where, {"allowed": way}, "allowed", problems) for way in allowed]
    return Field(
        name=name,
        type=str(kind),
        optional=optional,
        default=NULL if default is None and optional else default,
        allowed=tuple(way for way in ways if way is not None),
        spellings={
            dialect: tuple(_spellings(f"{where}.{dialect}", value[dialect], tables, problems))
            for dialect in DIALECTS
            if dialect in value
        },
    )


def _constant(name: str, value: object, problems: Problems) -> Field:
    """A field with one value, which no file says."""
    kinds = {bool: "bool", int: "int", float: "float", str: "str"}
    if type(value) not in kinds:
        problems.add(f"config.{name}", f"needs a table or a value, found {value!r}")
    only = expressions.literal(value)
    return Field(name, kinds.get(type(value), "str"), False, only, (only,), {})


def _spellings(where: str, value: object, tables: Tables, problems: Problems) -> Iterator[Spelling]:
    """A key, a list of keys, a table, or a list of tables of which the first that fits holds."""
    ways = value if isinstance(value, list) and value else [value]
    for way in ways if all(isinstance(way, dict) for way in ways) else [value]:
        table = way if isinstance(way, dict) else {"keys": way}
        yield _spelling(where, table, tables, problems)


def _spelling(where: str, table: Table, tables: Tables, problems: Problems) -> Spelling:
    problems.unknown(where, table, SPELLING_KEYS)
    if not table.get("keys") and not table.keys() & {"codec", "lost"}:
        problems.add(where, "needs keys, a codec, or why the value is lost")
    codec = problems.string(where, table, "codec")
    when = problems.table(where, table.get("when", {}))
    slots = _slots(where, codec, table.get("keys", []), tables, problems)
    also = problems.strings(where, table, "also")
    for key in sorted({source.text for slot in slots for source in slot} & {*also}):
        problems.add(where, f"{key} is in keys and in also; it is read as either")
    return Spelling(
        slots=slots,
        codec=codec,
        when={name: many(item) for name, item in when.items()},
        also=also,
        values=problems.table(where, table["values"]) if "values" in table else None,
        omit=_expression(where, table, "omit", problems),
        default=_expression(where, table, "default", problems),
        note=problems.string(where, table, "note"),
        lost=problems.string(where, table, "lost"),
    )


def _expression(where: str, table: Table, key: str, problems: Problems) -> Expression | None:
    if key not in table:
        return None
    try:
        return expressions.parse(table[key])
    except ValueError as error:
        problems.add(where, f"{key}: {error}")
        return None


# --- keys ----------------------------------------------------------------------------------------


def _slots(
    where: str, codec: str, keys: object, tables: Tables, problems: Problems
) -> tuple[tuple[Source, ...], ...]:
    """The sources of each value; of a codec that takes several, an item of ``keys`` is a slot."""
    if codec and codec not in CODECS:
        problems.add(where, f"codec {codec!r} is not one of {', '.join(CODECS)}")
        return ()
    count = len(CODECS[codec].keys) if codec else 1
    listed = [keys] if count == 1 else list(many(keys))
    if count != len(listed):
        problems.add(where, f"the codec {codec} takes {count} keys, found {len(listed)}")
    slots = tuple(tuple(_sources(where, item, tables, problems)) for item in listed)
    if codec and any(source.kind not in CODED for slot in slots for source in slot):
        problems.add(where, f"the codec {codec} takes keys and rows of tensors only")
    return slots


def _sources(where: str, value: object, tables: Tables, problems: Problems) -> Iterator[Source]:
    """Sources of a slot: ``{NAME}.rest`` once for every table that NAME stands for."""
    for key in many(value):
        name, brace, rest = key.partition("}") if isinstance(key, str) else ("", "", "")
        if brace and name[1:] in tables:
            yield from (Source("key", table + rest) for table in tables[name[1:]])
        elif source := source_of(where, key, problems):
            yield source


def source_of(where: str, value: object, problems: Problems) -> Source | None:
    """A key, or what a table says of the file; None with a problem if it is neither."""
    if isinstance(value, str) and value:
        return Source("key", value)
    if isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind in SOURCE_KINDS:
            return Source(kind, problems.text(where, text))
    old = "; ".join(filter(None, map(replaced, value))) if isinstance(value, dict) else ""
    unknown = f"{value!r} is neither a key nor one of {', '.join(SOURCE_KINDS)}"
    problems.add(where, old or unknown)
    return None
