"""The build file: TOML with variables and targets, checked as a whole."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

from maxtool.build.lines import lines_of
from maxtool.build.step import Kind
from maxtool.errors import MalformedFile, MissingFile

MAX_BYTES = 1 << 20
MAX_STEPS = 4096
ROOT_KEYS = ("variables", "targets")
OWN_KEYS = ("kind", "source", "output", "after", "matrix")
BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A target with all placeholders filled in: of a matrix there is one for each combination."""

    name: str
    kind: str
    place: tuple[str, ...]  # of its table in the file
    source: str
    output: str | None
    after: tuple[str, ...]
    options: Mapping[str, object]


@dataclass(slots=True)
class Problems:
    """Findings on what is wrong with a file, each with its line."""

    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, place: tuple[str, ...], what: str) -> None:
        """Note what is wrong at a place, or at the nearest one around it that has a line."""
        around = (place[:end] for end in range(len(place), 0, -1))
        line = next((self.lines[one] for one in around if one in self.lines), 0)
        self.found.append((line, f"{'.'.join(place)}: {what}"))

    def check(self, file: Path) -> None:
        """Raise ``MalformedFile`` with all that was found, in the order of the lines."""
        if self.found:
            told = [
                f"line {line}: {what}" if line else what for line, what in sorted({*self.found})
            ]
            raise MalformedFile("the build file is wrong", file=file, problems=told)


def read_targets(
    file: Path, kinds: Mapping[str, Kind], given: Values, problems: Problems
) -> list[Target]:
    """The targets of a build file; ``given`` variables replace its own.

    What is wrong goes to ``problems``, but for a file that is no TOML at all.

    Raises:
        MissingFile: If the file cannot be read.
        MalformedFile: If it is not TOML.
    """
    text = _text(file)
    try:
        root = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFile(f"the build file is not TOML: {error}", file=file) from None
    problems.lines = lines_of(text)
    for key in root.keys() - {*ROOT_KEYS}:
        problems.add((key,), _unknown(key, ROOT_KEYS))
    variables = _variables(root, given, problems)
    tables = _table(root, "targets", problems)
    if not tables and not problems.found:
        problems.add(("targets",), "there is no target; [targets.NAME] begins one")
    every = (
        target
        for name, table in tables.items()
        for target in _targets(name, table, kinds, variables, problems)
    )
    found = [*islice(every, MAX_STEPS + 1)]
    if len(found) > MAX_STEPS:
        problems.add(("targets",), f"there are more than {MAX_STEPS} targets")
    return found


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise MissingFile(f"cannot be read: {error.strerror}", file=file) from None
    if len(raw) > MAX_BYTES:
        raise MalformedFile(f"a build file has at most {MAX_BYTES} bytes", file=file)
    return raw.decode(errors="replace")


def _table(root: Mapping[str, Any], key: str, problems: Problems) -> Mapping[str, Any]:
    table = root.get(key, {})
    if not isinstance(table, dict):
        problems.add((key,), "has to be a table")
        return {}
    return table


def _variables(root: Mapping[str, Any], given: Values, problems: Problems) -> dict[str, str]:
    """The variables, each with those before it filled in."""
    own = _table(root, "variables", problems)
    for name in given.keys() - own.keys():
        problems.add(("variables",), f"--set {name}: {_unknown(name, own)}")
    result: dict[str, str] = {}
    for name, value in {**own, **given}.items():
        place = ("variables", name)
        if _is_plain(value):
            result[name] = _filled(str(value), result, place, problems)
        else:
            problems.add(place, "has to be a text or a number")
    return result


def _targets(
    name: str,
    table: object,
    kinds: Mapping[str, Kind],
    variables: Values,
    problems: Problems,
) -> Iterable[Target]:
    """The targets of a table: as many as its matrix has combinations."""
    place = ("targets", name)
    if not isinstance(table, dict):
        problems.add(place, "has to be a table")
        return
    kind = kinds.get(str(table.get("kind")))
    if kind is None:
        _tell_missing_kind(place, table, kinds, problems)
        return
    _check_keys(place, table, kind, problems)
    for combination in _combinations(place, table.get("matrix", {}), problems):
        values = {**variables, **combination}

        def text(key: str, values: Values = values) -> str:
            filled = _filled(str(table.get(key, "")), values, (*place, key), problems)
            if not filled and table.get(key):
                problems.add((*place, key), "is empty once it is filled in")
            return filled

        yield Target(
            _filled(name, values, place, problems),
            table["kind"],
            place,
            text("source"),
            text("output") if kind.has_output else None,
            tuple(
                _filled(str(one), values, (*place, "after"), problems)
                for one in _list(table, "after")
            ),
            {
                key: _deep(value, values, (*place, key), problems)
                for key, value in table.items()
                if key in kind.options
            },
        )


def _tell_missing_kind(
    place: tuple[str, ...], table: Mapping[str, Any], kinds: Iterable[str], problems: Problems
) -> None:
    """Say that there is no such kind, by which alone other keys are known; or what it is called."""
    from maxtool.weights.names import did_you_mean

    problems.add((*place, "kind"), _unknown(table.get("kind"), kinds, "kind"))
    if "kind" in table:
        return
    for key in table:
        if key not in OWN_KEYS and did_you_mean(key[:80], ["kind"]):
            problems.add((*place, key), _unknown(key, ["kind"]))


def _check_keys(
    place: tuple[str, ...], table: Mapping[str, Any], kind: Kind, problems: Problems
) -> None:
    """Check that the keys of a target are known, those that it needs there, and of their types."""
    own = [key for key in OWN_KEYS if kind.has_output or key != "output"]
    known = [*own, *kind.options]
    for key, value in table.items():
        if key not in known:
            problems.add((*place, key), _unknown(key, known))
        elif key in kind.options and kind.options[key].words(value) is None:
            problems.add((*place, key), f"has to be {kind.options[key].takes}")
    for key in ("source", *(["output"] if kind.has_output else [])):
        if not isinstance(table.get(key), str) or not table[key]:
            problems.add((*place, key), "is missing" if key not in table else "has to be a path")
    after = table.get("after", [])
    if not isinstance(after, list) or not all(isinstance(one, str) for one in after):
        problems.add((*place, "after"), "has to be a list of names of targets")


def _is_plain(value: object) -> bool:
    """Return whether a value is a text or a number."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _list(table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key, [])
    return value if isinstance(value, list) else []


def _combinations(
    place: tuple[str, ...], matrix: object, problems: Problems
) -> Iterable[dict[str, str]]:
    """Every choice of one value for each key of a matrix; the one empty choice without one.

    There may be more than memory holds.
    """
    place = (*place, "matrix")
    if not isinstance(matrix, dict):
        problems.add(place, "has to be a table of lists")
        return []
    for key, values in matrix.items():
        if not values or not isinstance(values, list) or not all(map(_is_plain, values)):
            problems.add((*place, key), "has to be a list of texts or numbers")
            return []
    choices = product(*matrix.values())
    return ({key: str(one) for key, one in zip(matrix, choice, strict=True)} for choice in choices)


def _deep(value: object, values: Values, place: tuple[str, ...], problems: Problems) -> object:
    if isinstance(value, list):
        return [_deep(one, values, place, problems) for one in value]
    return _filled(value, values, place, problems) if isinstance(value, str) else value


def _filled(text: str, values: Values, place: tuple[str, ...], problems: Problems) -> str:
    """A text with its placeholders filled in; ``{{`` and ``}}`` are braces."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            if len(match[0]) == 1:
                problems.add(place, f"{match[0]} stands alone; {2 * match[0]} is a brace")
            return match[0][0]
        if match[1] not in values:
            problems.add(place, f"{{{match[1]}}}: {_unknown(match[1], values, 'variable')}")
        return values.get(match[1], "")

    return BRACES.sub(value, text)


def _unknown(name: object, known: Iterable[str], what: str = "key") -> str:
    """Say that a name is not known, and what comes near it or is there."""
    from maxtool.weights.names import did_you_mean

    known = list(known)
    near = did_you_mean(str(name)[:80], known)
    if name is None:
        return f"is missing; one of {', '.join(known)}"
    told = near or f"known: {', '.join(known) or 'none'}"
    return f"there is no {what} {str(name)!r:.80}; {told}"
