"""From the tables of a recipe's TOML to the objects of ``schema``, collecting every problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from maxtool.recipe import parse_rules
from maxtool.recipe.problems import Problems, Table
from maxtool.recipe.schema import (
    DIALECTS,
    SCHEMA_VERSION,
    Default,
    Dialect,
    Field,
    Match,
    Recipe,
    Source,
    Spelling,
    Tolerance,
)

T = TypeVar("T")

TYPES = ("int", "float", "bool", "str")
SOURCE_KINDS = ("length", "rows", "present", "absent")
DEFAULT_KINDS: Mapping[str, int] = {"field": 1, "quotient": 2}  # kind to number of fields

REQUIRED = ("schema", "name", "architecture", "match", "config", "weights")
TEXTS = frozenset({"schema", "name", "architecture"})
SECTIONS = frozenset({*REQUIRED, "expect", "constants", "order", "entries", "check"})
FIELD_KEYS = frozenset({"type", "optional", "default", "allowed", *DIALECTS})
SPELLING_KEYS = frozenset({"keys", "also", "values", "omit", "default", "note", "lost"})
MATCH_REQUIRES = "requires"


def parse(data: Table, file: Path, problems: Problems) -> Recipe | None:
    """The recipe a file's tables describe.

    Args:
        data: What ``tomllib`` read.
        file: Where from.
        problems: Takes everything that is wrong.

    Returns:
        The recipe, or None when a required section is missing.
    """
    problems.unknown("top level", data, SECTIONS)
    missing = [key for key in REQUIRED if key not in data]
    for key in missing:
        problems.add("top level", f"{key!r} is missing")
    if missing:
        return None
    if data["schema"] != SCHEMA_VERSION:
        problems.add(
            "schema", f"this maxtool reads schema {SCHEMA_VERSION}, not {data['schema']!r}"
        )
    data = _named(data, _gguf_name(data, problems))
    tables = {key: problems.table(key, data.get(key, {})) for key in SECTIONS - TEXTS}
    return Recipe(
        name=problems.text("name", data["name"]),
        file=file,
        architecture=problems.text("architecture", data["architecture"]),
        match=_by_dialect("match", tables["match"], problems, _match),
        fields=_fields(tables["config"], problems),
        expect=_by_dialect("expect", tables["expect"], problems, _expect),
        constants=_by_dialect("constants", tables["constants"], problems, _constants),
        order=_order(tables["order"], problems),
        rules=_by_dialect("weights", tables["weights"], problems, parse_rules.rules),
        entries=_entries(tables["entries"], problems),
        check=_check(tables["check"], problems),
    )


def _gguf_name(data: Table, problems: Problems) -> str:
    """What GGUF calls the architecture."""
    match data.get("constants"):
        case {"gguf": {"general.architecture": str(name)}} if name:
            return name
    problems.add("constants.gguf", "'general.architecture' is missing")
    return ""


def _named(value: Any, name: str) -> Any:  # noqa: ANN401 - whatever TOML holds
    """``value`` with ``{arch}`` replaced in every text and key."""
    if isinstance(value, str):
        return value.replace("{arch}", name)
    if isinstance(value, list):
        return [_named(item, name) for item in value]
    if isinstance(value, dict):
        return {_named(key, name): _named(item, name) for key, item in value.items()}
    return value


def _by_dialect(
    where: str, table: Table, problems: Problems, read: Callable[[str, Table, Problems], T]
) -> dict[Dialect, T]:
    problems.unknown(where, table, DIALECTS)
    result: dict[Dialect, T] = {}
    for dialect in DIALECTS:
        name = f"{where}.{dialect}"
        result[dialect] = read(name, problems.table(name, table.get(dialect, {})), problems)
    return result


def _many(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


# --- recognising and configuring -----------------------------------------------------------------


def _match(where: str, table: Table, problems: Problems) -> Match:
    values = {key: _many(value) for key, value in table.items() if key != MATCH_REQUIRES}
    requires = table.get(MATCH_REQUIRES, [])
    return Match(values, problems.strings(where, requires) if requires else ())


def _expect(_where: str, table: Table, _problems: Problems) -> dict[str, tuple[Any, ...]]:
    return {key: _many(value) for key, value in table.items()}


def _constants(_where: str, table: Table, _problems: Problems) -> dict[str, Any]:
    return dict(table)


def _order(table: Table, problems: Problems) -> dict[Dialect, tuple[str, ...]]:
    problems.unknown("order", table, DIALECTS)
    named = [dialect for dialect in DIALECTS if dialect in table]
    return {dialect: problems.strings("order", table[dialect]) for dialect in named}


def _fields(table: Table, problems: Problems) -> dict[str, Field]:
    tables = {name: problems.table(f"config.{name}", field) for name, field in table.items()}
    return {name: _field(name, field, problems) for name, field in tables.items()}


def _field(name: str, table: Table, problems: Problems) -> Field:
    where = f"config.{name}"
    problems.unknown(where, table, FIELD_KEYS)
    kind = table.get("type")
    if kind not in TYPES:
        problems.add(where, f"type {kind!r} is not one of {', '.join(TYPES)}")
    return Field(
        name=name,
        type=str(kind),
        optional=table.get("optional", False) is True,
        default=_default(where, table, problems),
        allowed=_many(table["allowed"]) if "allowed" in table else (),
        spellings={
            dialect: _spelling(f"{where}.{dialect}", table[dialect], problems)
            for dialect in DIALECTS
            if dialect in table
        },
    )


def _default(where: str, table: Table, problems: Problems) -> Default | None:
    if "default" not in table:
        return Default("none") if table.get("optional") is True else None
    value = table["default"]
    if not isinstance(value, dict):
        return Default("value", value)
    kinds = [kind for kind in DEFAULT_KINDS if kind in value]
    if len(value) != 1 or not kinds:
        problems.add(where, f"a default is a value or one of {', '.join(DEFAULT_KINDS)}")
        return None
    operands = problems.strings(where, value[kinds[0]])
    if len(operands) != DEFAULT_KINDS[kinds[0]]:
        problems.add(
            where, f"{kinds[0]} takes {DEFAULT_KINDS[kinds[0]]} fields, found {operands!r}"
        )
        return None
    return Default(kinds[0], operands)


def _spelling(where: str, value: object, problems: Problems) -> Spelling:
    table = value if isinstance(value, dict) else {"keys": value}
    problems.unknown(where, table, SPELLING_KEYS)
    keys = table.get("keys", [])
    sources = [_source(where, key, problems) for key in _many(keys)]
    also = problems.strings(where, table["also"]) if "also" in table else ()
    return Spelling(
        sources=tuple(source for source in sources if source is not None),
        also=also,
        values=problems.table(where, table["values"]) if "values" in table else None,
        omit=table.get("omit"),
        has_omit="omit" in table,
        default=table.get("default"),
        note=problems.text(where, table["note"]) if "note" in table else "",
        lost=problems.text(where, table["lost"]) if "lost" in table else "",
    )


def _source(where: str, value: object, problems: Problems) -> Source | None:
    if isinstance(value, str):
        return Source("key", value)
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in SOURCE_KINDS:
        ((kind, text),) = value.items()
        return Source(kind, problems.text(where, text))
    problems.add(where, f"{value!r} is neither a key nor one of {', '.join(SOURCE_KINDS)}")
    return None


# --- compiling -----------------------------------------------------------------------------------


def _entries(table: Table, problems: Problems) -> dict[str, dict[str, tuple[int | str, ...]]]:
    entries: dict[str, dict[str, tuple[int | str, ...]]] = {}
    for name, value in table.items():
        inputs = problems.table(f"entries.{name}", value)
        entries[name] = {
            key: _dims(f"entries.{name}.{key}", dims, problems) for key, dims in inputs.items()
        }
    return entries


def _dims(where: str, value: object, problems: Problems) -> tuple[int | str, ...]:
    items = value if isinstance(value, list) else [None]
    if all(type(item) is int or isinstance(item, str) for item in items):
        return tuple(items)
    problems.add(where, f"needs a list of names and numbers, found {value!r}")
    return ()


def _check(table: Table, problems: Problems) -> dict[str, Tolerance]:
    checks: dict[str, Tolerance] = {}
    for name, value in table.items():
        where = f"check.{name}"
        tolerance = problems.table(where, value)
        problems.unknown(where, tolerance, ("rtol", "atol"))
        numbers = [parse_rules.number(tolerance.get(key)) for key in ("rtol", "atol")]
        if parse_rules.dtype(name) is None:
            problems.add(where, "is not an element type")
        if None in numbers or min(n for n in numbers if n is not None) < 0:
            problems.add(where, "needs rtol and atol, neither negative")
            continue
        checks[name] = Tolerance(rtol=numbers[0] or 0.0, atol=numbers[1] or 0.0)
    return checks
