"""The weight rules of a recipe's TOML, and the parameters of their operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from maxtool.recipe.brackets import NOT_RULES
from maxtool.recipe.expressions import is_number
from maxtool.recipe.name_patterns import Pattern, Rename
from maxtool.recipe.old_words import replaced
from maxtool.recipe.operations import OPERATIONS
from maxtool.recipe.problems import Problems, Table
from maxtool.recipe.rule import Rule, Rules
from maxtool.recipe.step import Step

FACTOR = re.compile(r"[a-z_]+(\.[0-9])?")
RULE_KEYS = frozenset({"from", "of", "op", "ops", "over", "part", "tie", "when", "lost", "zero"})
# Of which a rule has one.
ORIGINS = ("from", "of", "lost", "zero")


def rules(where: str, table: Table, problems: Problems) -> Rules:
    """All rules of one dialect; ``where`` is their section's name, for problems."""
    past = problems.table(f"{where}.past_layers", table.get("past_layers", {}))
    refuse = problems.table(f"{where}.refuse", table.get("refuse", {}))
    found = [
        _rule(f"{where}.{target!r}", target, way, problems)
        for target, value in table.items()
        if target not in NOT_RULES
        for way in _ways(value)
    ]
    return Rules(
        # Those of single parameters come before others that fit these too.
        rules=tuple(sorted(found, key=lambda rule: len(rule.target.indices))),
        drop=_patterns(f"{where}.drop", table["drop"], problems) if "drop" in table else (),
        past_layers={
            key: _patterns(f"{where}.past_layers", names, problems) for key, names in past.items()
        },
        refuse={
            problems.pattern(f"{where}.refuse", text): problems.text(where, reason)
            for text, reason in refuse.items()
        },
        rename=_renames(f"{where}.rename", table.get("rename", {}), problems),
    )


def _patterns(where: str, value: object, problems: Problems) -> tuple[Pattern, ...]:
    """The name patterns of one text or of a list of them."""
    return tuple(problems.pattern(where, text) for text in problems.texts(where, value))


def _renames(where: str, value: object, problems: Problems) -> tuple[Rename, ...]:
    found = [
        Rename(problems.pattern(where, old), problems.pattern(where, problems.text(where, new)))
        for old, new in problems.table(where, value).items()
    ]
    for problem in (problem for rename in found for problem in rename.problems()):
        problems.add(where, problem)
    return tuple(found)


def _ways(value: object) -> list[Any]:
    """List the ways of a rule, of which the first that applies holds."""
    several = isinstance(value, list) and value and all(isinstance(way, dict) for way in value)
    return value if isinstance(value, list) and several else [value]


def _rule(where: str, target: str, value: object, problems: Problems) -> Rule:
    table = value if isinstance(value, dict) else {"from": value}
    operation = OPERATIONS.get(str(table.get("op")))
    params = (*operation.params, *operation.optional) if operation else ()
    problems.unknown(where, table, {*RULE_KEYS, *params})
    origins = [key for key in ORIGINS if key in table]
    if not origins:
        problems.add(where, "'from' is missing")
    if len(origins) > 1:
        problems.add(where, f"{origins[0]!r} and {origins[1]!r} exclude each other")
    names = problems.strings(where, table, "from")
    return Rule(
        target=problems.pattern(where, target),
        sources=tuple(problems.pattern(where, name) for name in names),
        steps=tuple(_steps(where, table, problems)),
        over=problems.text(where, table["over"]) if "over" in table else None,
        part=_part(where, table, problems),
        tie=problems.text(where, table["tie"]) if "tie" in table else None,
        when=problems.table(where, table.get("when", {})),
        lost=problems.string(where, table, "zero" if "zero" in table else "lost"),
        zero="zero" in table,
        of=problems.text(where, table["of"]) if "of" in table else None,
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
        problems.add(where, replaced(name) or f"unknown operation {name!r} (known: {known})")
        return None
    given = {**operation.optional} | {key: value for key, value in table.items() if key != "op"}
    problems.unknown(f"{where} {name}", given, operation.params)
    missing = [key for key in operation.params if key not in given]
    for key in missing:
        problems.add(f"{where} {name}", f"{key!r} is missing")
    params: dict[str, Any] = {}
    for key, kind in operation.params.items():
        if key in given:
            read, needs = KINDS[kind]
            params[key] = read(given[key])
            if params[key] is None:
                problems.add(f"{where} {name}", f"{key} needs {needs}, found {given[key]!r}")
    if missing or None in params.values():
        return None
    for problem in operation.problems(params):
        problems.add(f"{where} {name}", problem)
    return Step(name, params)


def _axis(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 8 else None


def _size(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        factors = tuple(_size(factor) for factor in value)
        flat = factors and all(isinstance(factor, int | str) for factor in factors)
        return factors if flat else None
    return value if (type(value) is int and value > 0) or (value and type(value) is str) else None


def _rows(value: object) -> Any:  # noqa: ANN401
    return 0 if type(value) is int and value == 0 else _size(value)


def _factor(value: object) -> str | None:
    return value if isinstance(value, str) and FACTOR.fullmatch(value) else None


def _field(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _list_of(read: Callable[[object], Any]) -> Callable[[object], tuple[Any, ...] | None]:
    def listed(value: object) -> tuple[Any, ...] | None:
        items = tuple(map(read, value)) if isinstance(value, list) and value else (None,)
        return None if None in items else items

    return listed


def number(value: object) -> float | None:
    """``value`` as a float, or None."""
    return float(value) if is_number(value) else None


# A parameter's value as its kind has it, or None; and what that kind needs.
KINDS: Mapping[str, tuple[Callable[[object], Any], str]] = {
    "axis": (_axis, "a dimension counted from 0"),
    "axes": (_list_of(_axis), "a list of dimensions"),
    "size": (_size, "a number, a field, or a list of those to multiply"),
    "rows": (_rows, "0, a number, a field, or a list of those to multiply"),
    "sizes": (_list_of(_size), "a list of sizes"),
    "number": (number, "a number"),
    "factors": (_list_of(_factor), "a list of fields, those of several numbers as FIELD.INDEX"),
    "numbers": (_field, "a field of several numbers"),
}
