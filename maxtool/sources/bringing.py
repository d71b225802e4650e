"""The files of sources that are needed, brought to this machine."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from maxtool.conversion.hf_files import CONFIG
from maxtool.errors import MissingFile
from maxtool.sources import selection
from maxtool.sources.naming import local, origin_of
from maxtool.sources.origin import Origin, Progress
from maxtool.weights.names import did_you_mean

Needed = Literal["model", "file", "configuration"]
ShownProgress = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint on this machine, and where it came from.

    Attributes:
        path: What is opened.
        name: What is printed of it: its path, or the name that it was brought from.
        commit: The commit of the repository that it was brought from.
        record: What an output says of where it came from; nothing of a path, which means little.
        warnings: What may be amiss with what was found there.
    """

    path: Path
    name: str
    commit: str | None = None
    record: Mapping[str, object] = field(default_factory=dict)
    warnings: Sequence[str] = ()


def brought_from(origin: Origin, path: Path) -> Source:
    """The source that was brought from a place and is opened by a path."""
    name = str(origin.record["name"])
    return Source(path, name, origin.commit, origin.record, tuple(origin.warnings))


def bring(text: str, progress: ShownProgress, needed: Needed = "model") -> Source:
    """The files that a user names, of which those that are not on this machine are brought here.

    Args:
        text: A path, a URL, or the name of a repository.
        progress: Shows what is brought.
        needed: Whether it is a model, one file, beside which nothing is needed, or a model of which
            the configuration is, without the weights where these are in other files.

    Raises:
        UsageError: If it is not a name of that kind.
        MissingFile: If it is not there, or leaves a choice.
        InputError: If it cannot be read, or is not what was announced.
        MachineLacks: If a package or space for it is not here.
    """
    path = local(text)
    if path is not None:
        return Source(path, text)
    with progress("looking up") as meter:
        origin = origin_of(text, is_file=needed == "file")
        path = WAYS[needed](origin, meter)
        return brought_from(origin, path)


def _one(origin: Origin, progress: Progress) -> Path:
    """Bring the one file that is named."""
    if origin.asked not in origin.listing:
        what = f"there is no {origin.asked}" if origin.asked else "a file is to be named"
        hint = did_you_mean(origin.asked, origin.listing)
        raise MissingFile(what, file=origin.name, hint=hint)
    return origin.together({origin.asked: origin.bring(origin.asked, progress)}) / origin.asked


def _brought(origin: Origin, progress: Progress) -> Path:
    """Bring all that is needed of a place; return what is opened."""
    chosen = selection.select(origin)
    brought = {file: origin.bring(file, progress) for file in chosen.beside}
    configs, layers = selection.of_modules(origin, chosen.main, brought)
    brought |= {file: origin.bring(file, progress) for file in configs}
    main = origin.bring(chosen.main, progress) if chosen.main.endswith(selection.INDEX) else Path()
    files = selection.weights_of(chosen.main, main)
    origin.look_for(files)
    selection.check_listed(origin, files)
    files = [*files, *layers]
    progress.steps(len(files))
    brought |= {file: origin.bring(file, progress) for file in files}
    brought.setdefault(chosen.main, main)
    path = origin.together(brought) / chosen.main
    return path if chosen.is_named else path.parent


def _configuration(origin: Origin, progress: Progress) -> Path:
    """Bring config.json alone; all of a model that has none."""
    chosen = selection.select(origin)
    file = posixpath.join(posixpath.dirname(chosen.main), CONFIG)
    if file not in chosen.beside:
        return _brought(origin, progress)
    return (origin.together({file: origin.bring(file, progress)}) / file).parent


WAYS: Mapping[Needed, Callable[[Origin, Progress], Path]] = {
    "model": _brought,
    "file": _one,
    "configuration": _configuration,
}
