"""The fields of a recipe's TOML: their types, their defaults, and how each dialect spells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maxtool.recipe import expressions
from maxtool.recipe.expressions import NULL, Expression
from maxtool.recipe.fieldtypes import TYPES
from maxtool.recipe.problems import Problems, Table
from maxtool.recipe.schema import DIALECTS, Field, Source, Spelling
from maxtool.recipe.spell import CONVERSIONS

Tables = Mapping[str, tuple[str, ...]]

SOURCE_KINDS = ("read", "length", "rows", "present", "absent", "period", "from", "except")
FIELD_KEYS = frozenset({"type", "optional", "default", "allowed", "beside", *DIALECTS})
EXPRESSIONS = ("is", "omit", "default", "null")
SPELLING_KEYS = frozenset(
    {"keys", "also", "values", "as", "if", "when", "note", "lost", *EXPRESSIONS},
)


def fields(table: Table, tables: Tables, problems: Problems) -> dict[str, Field]:
    """All fields of a recipe.

    Args:
        table: The section ``config``.
        tables: What ``{NAME}`` at the beginning of a Hugging Face key stands for.
        problems: Takes everything that is wrong.
    """
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
    default = _expression(where, value, "default", problems)
    return Field(
        name=name,
        type=str(kind),
        optional=optional,
        default=NULL if default is None and optional else default,
        allowed=_allowed(where, value, problems),
        beside=problems.text(where, value["beside"]) if "beside" in value else None,
        spellings={
            dialect: tuple(_spellings(f"{where}.{dialect}", value[dialect], tables, problems))
            for dialect in DIALECTS
            if dialect in value
        },
    )


def _allowed(where: str, table: Table, problems: Problems) -> tuple[Expression, ...]:
    ways = [{"allowed": way} for way in many(table["allowed"])] if "allowed" in table else []
    parsed = [_expression(where, way, "allowed", problems) for way in ways]
    return tuple(way for way in parsed if way is not None)


def _constant(name: str, value: object, problems: Problems) -> Field:
    """A field with one value, which no file says."""
    kinds = {bool: "bool", int: "int", float: "float", str: "str"}
    if type(value) not in kinds:
        problems.add(f"config.{name}", f"needs a table or a value, found {value!r}")
    kind = kinds.get(type(value), "str")
    only = expressions.literal(value)
    return Field(name, kind, False, only, (only,), None, {})


def _spellings(where: str, value: object, tables: Tables, problems: Problems) -> Iterator[Spelling]:
    """A key, a list of keys, a table, or a list of tables of which the first that fits holds."""
    several = isinstance(value, list) and all(isinstance(way, dict) for way in value)
    for way in value if isinstance(value, list) and several else [value]:
        table = way if isinstance(way, dict) else {"keys": way}
        yield _spelling(where, table, tables, problems)


def _spelling(where: str, table: Table, tables: Tables, problems: Problems) -> Spelling:
    problems.unknown(where, table, SPELLING_KEYS)
    sources = [_source(where, key, problems) for key in _expanded(table.get("keys", []), tables)]
    found = {key: _expression(where, table, key, problems) for key in EXPRESSIONS}
    return Spelling(
        only=_conditions(where, table.get("if", {}), problems),
        when=_conditions(where, table.get("when", {}), problems),
        says=found["is"],
        sources=tuple(source for source in sources if source is not None),
        also=problems.strings(where, table["also"]) if "also" in table else (),
        values=problems.table(where, table["values"]) if "values" in table else None,
        convert=_conversion(where, table["as"], problems) if "as" in table else None,
        omit=found["omit"],
        default=found["default"],
        null=found["null"],
        note=problems.text(where, table["note"]) if "note" in table else "",
        lost=problems.text(where, table["lost"]) if "lost" in table else "",
    )


def _expression(where: str, table: Table, key: str, problems: Problems) -> Expression | None:
    if key not in table:
        return None
    try:
        return expressions.parse(table[key])
    except ValueError as error:
        problems.add(where, f"{key}: {error}")
        return None


def _conditions(where: str, value: object, problems: Problems) -> dict[str, tuple[Any, ...]]:
    return {key: many(item) for key, item in problems.table(where, value).items()}


def _conversion(where: str, value: object, problems: Problems) -> tuple[str, str] | None:
    """A conversion's name, and the field it takes; none is the empty text."""
    given = dict(value) if isinstance(value, dict) else {value: ""}
    if len(given) == 1:
        ((name, field),) = given.items()
        row = CONVERSIONS.get(str(name))
        if row is not None and isinstance(field, str) and row.takes_field == bool(field):
            return str(name), field
    problems.add(where, f"as: {value!r} is not one of {', '.join(CONVERSIONS)}")
    return None


def _expanded(value: object, tables: Tables) -> Iterator[object]:
    """Each key, ``{NAME}.rest`` once for every table that NAME stands for."""
    for key in many(value):
        name, brace, rest = str(key).partition("}")
        if isinstance(key, str) and brace and name[1:] in tables:
            yield from (table + rest for table in tables[name[1:]])
        else:
            yield key


def _source(where: str, value: object, problems: Problems) -> Source | None:
    if isinstance(value, str) and value:
        return Source("key", value)
    if isinstance(value, dict):
        kinds = [kind for kind in value if kind in SOURCE_KINDS]
        extra = set(value) - set(kinds) - ({"every"} if kinds == ["except"] else set())
        if len(kinds) == 1 and not extra:
            every = problems.text(where, value["every"]) if "every" in value else ""
            return Source(kinds[0], problems.text(where, value[kinds[0]]), every)
    problems.add(where, f"{value!r} is neither a key nor one of {', '.join(SOURCE_KINDS)}")
    return None
