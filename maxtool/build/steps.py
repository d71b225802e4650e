"""Steps of a build file: targets as command lines, with their dependencies, in an order."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

from maxtool.build.build_file import Problems, Target, Values, read_targets
from maxtool.build.step import Kind, Step
from maxtool.errors import UsageError
from maxtool.urls import is_url

NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)
REFERENCE = "@"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The names of targets by the places that they write to, and by the folders around these."""

    places: dict[str, str] = field(default_factory=dict)
    folders: dict[str, list[str]] = field(default_factory=dict)

    def add(self, target: Target, problems: Problems) -> None:
        """Add a target's output, which no other may be, lie in or hold: it is replaced whole."""
        if target.output is None:
            return
        if others := self.around(target.output) + self.below(target.output):
            what = f"{target.output} is, holds or lies in the output of {others[0]}"
            problems.add((*target.place, "output"), what)
        first, *around = _folders(target.output)
        self.places.setdefault(first, target.name)
        for folder in around:
            self.folders.setdefault(folder, []).append(target.name)

    def around(self, path: str) -> list[str]:
        """The targets whose outputs are a path, or hold it."""
        return [self.places[folder] for folder in _folders(path) if folder in self.places]

    def below(self, path: str) -> list[str]:
        """The targets whose outputs lie below a path."""
        return self.folders.get(_folders(path)[0], [])


def _folders(path: str) -> list[str]:
    """A path as it is named shortest, and all folders around it."""
    place = PurePosixPath(posixpath.normpath(path))
    return [str(place), *map(str, place.parents)]


def read_steps(file: Path, kinds: Mapping[str, Kind], given: Values) -> list[Step]:
    """The steps of a build file, each behind those that it depends on.

    Raises:
        MissingFile: If the file cannot be read.
        MalformedFile: If anything in it is wrong; it lists all of that with the lines.
    """
    problems = Problems()
    targets = read_targets(file, kinds, given, problems)
    named = _by_name(targets, problems)
    outputs = Outputs()
    for target in named.values():
        outputs.add(target, problems)
    steps = {
        target.name: _step(target, kinds[target.kind], named, outputs, problems)
        for target in named.values()
    }
    ordered = _in_order(steps, named, problems)
    problems.check(file)
    return ordered


def selected(steps: Sequence[Step], names: Iterable[str], *, only: bool) -> list[Step]:
    """The steps of these names and all that they depend on, or ``only`` they; all without names.

    A name may be a shell pattern. UsageError if nothing has it.
    """
    from fnmatch import fnmatchcase

    wanted: set[str] = set()
    for name in names:
        matching = {step.name for step in steps if fnmatchcase(step.name, name)}
        if not matching:
            from maxtool.weights.names import did_you_mean

            hint = did_you_mean(name[:80], [step.name for step in steps])
            raise UsageError(f"there is no target {name!r:.80}", hint=hint)
        wanted |= matching
    if not wanted:
        return list(steps)
    if not only:
        for step in reversed(steps):
            wanted |= {*step.after} if step.name in wanted else set()
    return [step for step in steps if step.name in wanted]


def _by_name(targets: Iterable[Target], problems: Problems) -> dict[str, Target]:
    """Targets by their names; no two have the same."""
    named: dict[str, Target] = {}
    for target in targets:
        if not NAME.fullmatch(target.name):
            what = f"{target.name!r} is no name: letters, digits and . _ + - behind the first"
            problems.add(target.place, what)
        elif target.name in named:
            problems.add(target.place, f"a second target has the name {target.name!r}")
        named.setdefault(target.name, target)
    return named


def _step(
    target: Target,
    kind: Kind,
    named: Mapping[str, Target],
    outputs: Outputs,
    problems: Problems,
) -> Step:
    """The command line of a target, with the outputs of others in the place of their names."""
    after = dict.fromkeys(target.after)

    def resolved(value: object, key: str) -> object:
        if isinstance(value, list):
            return [resolved(one, key) for one in value]
        if not isinstance(value, str):
            return value
        if not value.startswith(REFERENCE):
            others = outputs.around(value) + (outputs.below(value) if key == "source" else [])
            after.update(dict.fromkeys(name for name in others if name != target.name))
            return value
        name, slash, rest = value[1:].partition("/")
        output = named[name].output if name in named else None
        if output is None:
            problems.add((*target.place, key), _no_output(name, named))
            return value
        after.setdefault(name)
        return f"{output}{slash}{rest}"

    source = str(resolved(target.source, "source"))
    if is_url(source) and not kind.takes_urls:
        what = "is a URL, which convert and compile take, and this is read from a path here"
        problems.add((*target.place, "source"), what)
    if is_url(target.output or ""):
        what = "is a URL, and a build compares what it wrote on this machine: write to a path, and "
        problems.add((*target.place, "output"), f"{what}copy it from there")
    options = {key: resolved(value, key) for key, value in sorted(target.options.items())}
    forms = kind.options
    words = [word for key, value in options.items() for word in forms[key].words(value) or ()]
    for name in target.after:
        if name not in named:
            problems.add((*target.place, "after"), _no_output(name, named))
    argv = (kind.command, *([source] if source else ()), *words)
    return Step(target.name, target.kind, argv, source, target.output, tuple(after))


def _no_output(name: str, named: Mapping[str, Target]) -> str:
    from maxtool.weights.names import did_you_mean

    if name in named:
        return f"{REFERENCE}{name} writes nothing"
    near = did_you_mean(name[:80], named)
    return f"there is no target {name!r:.80}{f'; {near}' if near else ''}"


def _in_order(
    steps: Mapping[str, Step], named: Mapping[str, Target], problems: Problems
) -> list[Step]:
    """Steps behind those that they depend on, otherwise as they stand in the file."""
    edges = {name: [one for one in step.after if one in steps] for name, step in steps.items()}
    try:
        order = [*TopologicalSorter(edges).static_order()]
    except CycleError as error:
        circle = [str(name) for name in error.args[1]]
        problems.add(named[circle[0]].place, f"depends on itself: {' <- '.join(circle)}")
        return []
    return [steps[name] for name in order]
