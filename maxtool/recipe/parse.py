"""From the tables of a recipe's TOML to the objects of ``schema``, collecting every problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe.names import Pattern
from maxtool.recipe.ops import OPERATIONS, Step
from maxtool.recipe.schema import (
    DIALECTS,
    SCHEMA_VERSION,
    Default,
    Dialect,
    Field,
    Match,
    Recipe,
    Rule,
    Rules,
    Source,
    Spelling,
    Tolerance,
)

Table = Mapping[str, Any]
TYPES = ("int", "float", "bool", "str")
SOURCE_KINDS = ("length", "rows", "present", "absent")
DEFAULT_KINDS: Mapping[str, int] = {"field": 1, "quotient": 2}  # kind to number of fields

REQUIRED = ("schema", "name", "architecture", "match", "config", "weights")
SECTIONS = frozenset({*REQUIRED, "expect", "constants", "order", "entries", "check"})
FIELD_KEYS = frozenset({"type", "optional", "default", "allowed", *DIALECTS})
SPELLING_KEYS = frozenset({"keys", "also", "values", "omit", "default", "note"})
RULE_KEYS = frozenset({"from", "op", "ops", "over", "part", "tie", "when"})
RULES_KEYS = frozenset({"drop", "refuse"})
MATCH_REQUIRES = "requires"


class Problems:
    """What is wrong with one file, gathered while the rest is read on."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, where: str, what: str) -> None:
        """Note one problem."""
        self.found.append(f"{where}: {what}")

    def unknown(self, where: str, table: Table, known: Iterable[str]) -> None:
        """Note every key of ``table`` that is not known."""
        known = sorted(known)
        for key in sorted(set(table) - set(known)):
            self.add(where, f"unknown key {key!r} (known: {', '.join(known)})")

    def table(self, where: str, value: object) -> Table:
        """``value`` if it is a table; else an empty one and a problem."""
        if isinstance(value, dict):
            return value
        self.add(where, f"needs a table, found {value!r}")
        return {}

    def strings(self, where: str, value: object) -> tuple[str, ...]:
        """``value`` as strings, one or a list; else nothing and a problem."""
        items = value if isinstance(value, list) else [value]
        if items and all(isinstance(item, str) and item for item in items):
            return tuple(items)
        self.add(where, f"needs a text or a list of texts, found {value!r}")
        return ()

    def text(self, where: str, value: object) -> str:
        """``value`` if it is text; else nothing and a problem."""
        if isinstance(value, str) and value:
            return value
        self.add(where, f"needs a text, found {value!r}")
        return ""

    def pattern(self, where: str, text: str) -> Pattern:
        """A name pattern, its problems noted."""
        pattern = Pattern(text)
        for problem in pattern.problems():
            self.add(where, problem)
        return pattern


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
    sections = {
        key: problems.table(key, data.get(key, {}))
        for key in SECTIONS - {"schema", "name", "architecture"}
    }
    constants = _by_dialect(
        "constants", sections["constants"], problems, lambda _where, table: dict(table)
    )
    prefix = str(constants.get("gguf", {}).get("general.architecture", ""))
    if not prefix:
        problems.add("constants.gguf", "'general.architecture' is missing")
    return Recipe(
        name=problems.text("name", data["name"]),
        file=file,
        architecture=problems.text("architecture", data["architecture"]),
        match=_by_dialect("match", sections["match"], problems, _match(prefix, problems)),
        fields=_fields(sections["config"], prefix, problems),
        expect=_by_dialect("expect", sections["expect"], problems, _expect(prefix)),
        constants=constants,
        order=_order(sections["order"], prefix, problems),
        rules=_by_dialect("weights", sections["weights"], problems, _rules(problems)),
        entries=_entries(sections["entries"], problems),
        check=_check(sections["check"], problems),
    )


def _by_dialect(
    where: str, table: Table, problems: Problems, read: Callable[[str, Table], Any]
) -> dict[Dialect, Any]:
    problems.unknown(where, table, DIALECTS)
    names = {dialect: f"{where}.{dialect}" for dialect in DIALECTS}
    return {
        dialect: read(names[dialect], problems.table(names[dialect], table.get(dialect, {})))
        for dialect in DIALECTS
    }


def _many(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


# --- recognising and configuring -----------------------------------------------------------------


def _match(prefix: str, problems: Problems) -> Callable[[str, Table], Match]:
    def read(where: str, table: Table) -> Match:
        values = {key: _many(value) for key, value in table.items() if key != MATCH_REQUIRES}
        requires = table.get(MATCH_REQUIRES, [])
        keys = problems.strings(where, requires) if requires else ()
        return Match(values, tuple(_arch(key, prefix) for key in keys))

    return read


def _expect(prefix: str) -> Callable[[str, Table], dict[str, tuple[Any, ...]]]:
    return lambda _where, table: {_arch(k, prefix): _many(v) for k, v in table.items()}


def _arch(key: str, prefix: str) -> str:
    return key.replace("{arch}", prefix)


def _order(table: Table, prefix: str, problems: Problems) -> dict[Dialect, tuple[str, ...]]:
    problems.unknown("order", table, DIALECTS)
    return {
        dialect: tuple(_arch(key, prefix) for key in problems.strings("order", table[dialect]))
        for dialect in DIALECTS
        if dialect in table
    }


def _fields(table: Table, prefix: str, problems: Problems) -> dict[str, Field]:
    tables = {name: problems.table(f"config.{name}", field) for name, field in table.items()}
    return {name: _field(name, field, prefix, problems) for name, field in tables.items()}


def _field(name: str, table: Table, prefix: str, problems: Problems) -> Field:
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
            dialect: _spelling(f"{where}.{dialect}", table[dialect], prefix, problems)
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


def _spelling(where: str, value: object, prefix: str, problems: Problems) -> Spelling:
    table = value if isinstance(value, dict) else {"keys": value}
    problems.unknown(where, table, SPELLING_KEYS)
    keys = table.get("keys", [])
    sources = [_source(where, key, prefix, problems) for key in _many(keys)]
    also = problems.strings(where, table["also"]) if "also" in table else ()
    return Spelling(
        sources=tuple(source for source in sources if source is not None),
        also=tuple(_arch(key, prefix) for key in also),
        values=problems.table(where, table["values"]) if "values" in table else None,
        omit=table.get("omit"),
        has_omit="omit" in table,
        default=table.get("default"),
        note=problems.text(where, table["note"]) if "note" in table else "",
    )


def _source(where: str, value: object, prefix: str, problems: Problems) -> Source | None:
    if isinstance(value, str):
        return Source("key", _arch(value, prefix))
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in SOURCE_KINDS:
        ((kind, text),) = value.items()
        return Source(kind, _arch(problems.text(where, text), prefix))
    problems.add(where, f"{value!r} is neither a key nor one of {', '.join(SOURCE_KINDS)}")
    return None


# --- weights -------------------------------------------------------------------------------------


def _rules(problems: Problems) -> Callable[[str, Table], Rules]:
    def read(where: str, table: Table) -> Rules:
        drop = problems.strings(f"{where}.drop", table["drop"]) if "drop" in table else ()
        refuse = problems.table(f"{where}.refuse", table.get("refuse", {}))
        return Rules(
            rules=tuple(
                _rule(f"{where}.{target!r}", target, value, problems)
                for target, value in table.items()
                if target not in RULES_KEYS
            ),
            drop=tuple(problems.pattern(f"{where}.drop", text) for text in drop),
            refuse={
                problems.pattern(f"{where}.refuse", text): problems.text(where, reason)
                for text, reason in refuse.items()
            },
        )

    return read


def _rule(where: str, target: str, value: object, problems: Problems) -> Rule:
    table = value if isinstance(value, dict) else {"from": value}
    operation = OPERATIONS.get(str(table.get("op")))
    problems.unknown(where, table, {*RULE_KEYS, *(operation.params if operation else ())})
    if "from" not in table:
        problems.add(where, "'from' is missing")
    names = problems.strings(where, table["from"]) if "from" in table else ()
    return Rule(
        target=problems.pattern(where, target),
        sources=tuple(problems.pattern(where, name) for name in names),
        steps=tuple(_steps(where, table, problems)),
        over=problems.text(where, table["over"]) if "over" in table else None,
        part=_part(where, table, problems),
        tie=problems.text(where, table["tie"]) if "tie" in table else None,
        when=problems.table(where, table["when"]) if "when" in table else None,
    )


def _part(where: str, table: Table, problems: Problems) -> int | None:
    part = table.get("part")
    if part is None or (type(part) is int and part >= 0):
        return part
    problems.add(where, f"part needs a number from 0, found {part!r}")
    return None


def _steps(where: str, table: Table, problems: Problems) -> Iterable[Step]:
    if "op" in table and "ops" in table:
        problems.add(where, "'op' and 'ops' exclude each other")
    inline = {key: value for key, value in table.items() if key not in RULE_KEYS - {"op"}}
    chain = table.get("ops", [inline] if "op" in table else [])
    for item in chain if isinstance(chain, list) else [chain]:
        step = _step(where, problems.table(where, item), problems)
        if step is not None:
            yield step


def _step(where: str, table: Table, problems: Problems) -> Step | None:
    name = str(table.get("op"))
    operation = OPERATIONS.get(name)
    if operation is None or not operation.recipe:
        known = ", ".join(sorted(key for key, row in OPERATIONS.items() if row.recipe))
        problems.add(where, f"unknown operation {name!r} (known: {known})")
        return None
    given = {key: value for key, value in table.items() if key != "op"}
    problems.unknown(f"{where} {name}", given, operation.params)
    missing = [key for key in operation.params if key not in given]
    for key in missing:
        problems.add(f"{where} {name}", f"{key!r} is missing")
    params = {
        key: _parameter(f"{where} {name}", key, kind, given[key], problems)
        for key, kind in operation.params.items()
        if key in given
    }
    if missing or None in params.values():
        return None
    for problem in operation.problems(params):
        problems.add(f"{where} {name}", problem)
    return Step(name, params)


def _parameter(where: str, key: str, kind: str, value: object, problems: Problems) -> Any:  # noqa: ANN401
    """``value`` as the kind of parameter needs it, or None and a problem."""
    good = KINDS[kind](value)
    if good is None:
        problems.add(where, f"{key} needs {KIND_NAMES[kind]}, found {value!r}")
    return good


def _axis(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 8 else None


def _axes(value: object) -> tuple[int, ...] | None:
    axes = tuple(_axis(item) for item in value) if isinstance(value, list) and value else (None,)
    return None if None in axes else axes  # type: ignore[return-value]


def _size(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        factors = tuple(_size(factor) for factor in value)
        flat = factors and all(isinstance(factor, int | str) for factor in factors)
        return factors if flat else None
    return (
        value if (type(value) is int and value > 0) or (isinstance(value, str) and value) else None
    )


def _sizes(value: object) -> Any:  # noqa: ANN401
    sizes = tuple(map(_size, value)) if isinstance(value, list) and value else (None,)
    return None if None in sizes else sizes


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _dtype(value: object) -> DType | None:
    return next((dtype for dtype in DType if dtype.value == value), None)


def _encoding(value: object) -> QuantizationEncoding | None:
    return next((encoding for encoding in QuantizationEncoding if encoding.name == value), None)


KINDS: Mapping[str, Callable[[object], Any]] = {
    "axis": _axis,
    "axes": _axes,
    "size": _size,
    "sizes": _sizes,
    "number": _number,
    "dtype": _dtype,
    "encoding": _encoding,
}
KIND_NAMES: Mapping[str, str] = {
    "axis": "a dimension counted from 0",
    "axes": "a list of dimensions",
    "size": "a number, a field, or a list of those to multiply",
    "sizes": "a list of sizes",
    "number": "a number",
    "dtype": "an element type",
    "encoding": "a block encoding",
}


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
        numbers = [_number(tolerance.get(key)) for key in ("rtol", "atol")]
        if _dtype(name) is None:
            problems.add(where, "is not an element type")
        if None in numbers or min(n for n in numbers if n is not None) < 0:
            problems.add(where, "needs rtol and atol, neither negative")
            continue
        checks[name] = Tolerance(rtol=numbers[0] or 0.0, atol=numbers[1] or 0.0)
    return checks
