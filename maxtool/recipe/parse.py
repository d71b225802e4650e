"""Parse the tables of a recipe's TOML into the objects of ``schema``, all problems at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from maxtool.dtype import DType
from maxtool.recipe import parse_fields, parse_rules, schema
from maxtool.recipe.computed import TENSOR_CODECS
from maxtool.recipe.parse_fields import many
from maxtool.recipe.problems import Problems, Table
from maxtool.recipe.schema import DIALECTS, Dialect

T = TypeVar("T")

REQUIRED = ("schema", "name", "architecture", "match", "config", "weights")
TEXTS = frozenset({"schema", "name", "architecture", "section", "language_model"})
SECTIONS = frozenset(
    {
        *REQUIRED,
        *("section", "language_model", "tables", "expect", "constants", "order", "computed"),
        *("aside", "entries", "check"),
    }
)
ASIDE_KEYS = frozenset({"note", "keys", "tensors"})
COMPUTED_KEYS = frozenset({"codec", "field", "when"})
MATCH_REQUIRES = "requires"


def parse(data: Table, file: Path, problems: Problems) -> schema.Recipe | None:
    """The recipe a file's tables describe, or None when a required section is missing."""
    problems.unknown("top level", data, SECTIONS)
    missing = [key for key in REQUIRED if key not in data]
    for key in missing:
        problems.add("top level", f"{key!r} is missing")
    if missing:
        return None
    if data["schema"] != schema.SCHEMA_VERSION:
        problems.add(
            "schema", f"this maxtool reads schema {schema.SCHEMA_VERSION}, not {data['schema']!r}"
        )
    data = _named(data, _gguf_name(data, problems))
    tables = {key: problems.table(key, data.get(key, {})) for key in SECTIONS - TEXTS}
    named = tables["tables"]
    names = {name: problems.texts(f"tables.{name}", value) for name, value in named.items()}
    return schema.Recipe(
        name=problems.text("name", data["name"]),
        file=file,
        architecture=problems.text("architecture", data["architecture"]),
        section=problems.string("section", data, "section"),
        language_model=problems.string("language_model", data, "language_model"),
        match=_by_dialect("match", tables["match"], problems, _match),
        tables=names,
        fields=parse_fields.fields(tables["config"], names, problems),
        expect=_by_dialect("expect", tables["expect"], problems, _values),
        constants=_by_dialect("constants", tables["constants"], problems, _constants),
        order=_order(tables["order"], problems),
        computed=_by_dialect("computed", tables["computed"], problems, _computed),
        aside=_by_dialect("aside", tables["aside"], problems, _aside),
        rules=_by_dialect("weights", tables["weights"], problems, parse_rules.rules),
        entries=_entries(tables["entries"], problems),
        check=_check(tables["check"], problems),
    )


def matches(data: Table, problems: Problems) -> dict[Dialect, schema.Match]:
    """The rules that recognise a model: all that is read of recipes that are not used."""
    table = problems.table("match", data.get("match", {}))
    return _by_dialect("match", _named(table, _gguf_name(data, problems)), problems, _match)


def _gguf_name(data: Table, problems: Problems) -> str:
    """GGUF's name for the architecture; empty for one that GGUF has no form of."""
    match data.get("constants"):
        case {"gguf": {"general.architecture": str(name)}} if name:
            return name
    if any(_says_gguf(data.get(section)) for section in ("match", "weights", "constants")):
        problems.add("constants.gguf", "'general.architecture' is missing")
    return ""


def _says_gguf(section: object) -> bool:
    return isinstance(section, dict) and bool(section.get("gguf"))


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
    own = {d: problems.table(f"{where}.{d}", table.get(d, {})) for d in DIALECTS}
    return {dialect: read(f"{where}.{dialect}", own[dialect], problems) for dialect in DIALECTS}


# --- recognising and configuring -----------------------------------------------------------------


def _match(where: str, table: Table, problems: Problems) -> schema.Match:
    values = {key: many(value) for key, value in table.items() if key != MATCH_REQUIRES}
    where, required = f"{where}.{MATCH_REQUIRES}", many(table.get(MATCH_REQUIRES, []))
    requires = [parse_fields.source_of(where, each, problems) for each in required]
    known = tuple(each for each in requires if each is not None)
    if any(each.kind not in ("key", "present", "absent", "blocks") for each in known):
        problems.add(where, "takes keys, and tensors that are present, absent or blocks")
    return schema.Match(values, known)


def _constants(where: str, table: Table, problems: Problems) -> Table:
    """Keys that are always written, with values that JSON and GGUF both have."""
    for key, value in table.items():
        items = value if isinstance(value, list) else [value]
        scalars = all(isinstance(item, bool | int | float | str) for item in items)
        if not items or not scalars or len({type(item) for item in items}) > 1:
            needed = "a text, a number, a truth value or a list of one of them"
            problems.add(f"{where}.{key}", f"needs {needed}, found {value!r}")
        elif any(isinstance(item, int) and not -(1 << 31) <= item < 1 << 31 for item in items):
            problems.add(f"{where}.{key}", f"{value!r} does not fit 32 bits")
    return table


def _values(_where: str, table: Table, _problems: Problems) -> dict[str, tuple[Any, ...]]:
    return {key: many(value) for key, value in table.items()}


def _order(table: Table, problems: Problems) -> dict[Dialect, tuple[str, ...]]:
    problems.unknown("order", table, DIALECTS)
    named = [dialect for dialect in DIALECTS if dialect in table]
    return {dialect: problems.strings("order", table, dialect) for dialect in named}


def _aside(where: str, table: Table, problems: Problems) -> schema.Aside:
    problems.unknown(where, table, ASIDE_KEYS)
    if not table:
        return schema.Aside()
    names = problems.strings(where, table, "tensors")
    return schema.Aside(
        note=problems.text(where, table.get("note")),
        keys=frozenset(problems.strings(where, table, "keys")),
        tensors=tuple(problems.pattern(where, name) for name in names),
    )


def _computed(where: str, table: Table, problems: Problems) -> tuple[schema.Computed, ...]:
    return tuple(_tensor(f"{where}.{name!r}", name, item, problems) for name, item in table.items())


def _tensor(where: str, name: str, value: object, problems: Problems) -> schema.Computed:
    table = problems.table(where, value)
    problems.unknown(where, table, COMPUTED_KEYS)
    codec = str(table.get("codec", "floats"))
    if codec not in TENSOR_CODECS:
        problems.add(where, f"codec {codec!r} is not one of {', '.join(TENSOR_CODECS)}")
    holders = [name for name, each in TENSOR_CODECS.items() if each.holds_field]
    if codec in TENSOR_CODECS and (codec in holders) != ("field" in table):
        problems.add(where, f"{', '.join(holders)}, and nothing else, take a field")
    by_layer = codec in TENSOR_CODECS and TENSOR_CODECS[codec].by_layer is not None
    if by_layer != ("{layer}" in name):
        problems.add(where, "a codec by layer, and no other, is of a name with {layer}")
    field = problems.string(where, table, "field")
    return schema.Computed(name, codec, field, dict(problems.table(where, table.get("when", {}))))


# --- compiling -----------------------------------------------------------------------------------


def _entries(table: Table, problems: Problems) -> dict[str, dict[str, tuple[int | str, ...]]]:
    entries: dict[str, dict[str, tuple[int | str, ...]]] = {}
    for name, value in table.items():
        where = f"entries.{name}"
        inputs = problems.table(where, value)
        entries[name] = {k: _dims(f"{where}.{k}", dims, problems) for k, dims in inputs.items()}
    return entries


def _dims(where: str, value: object, problems: Problems) -> tuple[int | str, ...]:
    items = value if isinstance(value, list) else [None]
    if all(type(item) is int or isinstance(item, str) for item in items):
        return tuple(items)
    problems.add(where, f"needs a list of names and numbers, found {value!r}")
    return ()


def _check(table: Table, problems: Problems) -> dict[str, schema.Tolerance]:
    checks: dict[str, schema.Tolerance] = {}
    for name, value in table.items():
        where = f"check.{name}"
        tolerance = problems.table(where, value)
        problems.unknown(where, tolerance, ("rtol", "atol"))
        numbers = [parse_rules.number(tolerance.get(key)) for key in ("rtol", "atol")]
        if name not in {dtype.value for dtype in DType}:
            problems.add(where, "is not an element type")
        if None in numbers or min(n for n in numbers if n is not None) < 0:
            problems.add(where, "needs rtol and atol, neither negative")
            continue
        checks[name] = schema.Tolerance(rtol=numbers[0] or 0.0, atol=numbers[1] or 0.0)
    return checks
