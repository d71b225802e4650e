"""Names that users give to sources, and the files that they come to."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from maxtool.sources import selection
from maxtool.sources.hub_library import is_installed
from maxtool.sources.hub_repository import CachedRepository, repository
from maxtool.sources.origin import Origin, Progress
from maxtool.weights import hub
from maxtool.weights.hub import HubName
from maxtool.weights.opened_checkpoint import OpenedCheckpoint, open_anywhere, open_headers

ShownProgress = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint on this machine, and where it came from.

    Attributes:
        path: What is opened.
        name: What is printed of it: its path, or the name that it was brought from.
        commit: The commit of the repository that it was brought from.
    """

    path: Path
    name: str
    commit: str | None = None

    @property
    def record(self) -> dict[str, str]:
        """Words of an output on where it came from; nothing of a path, which means little."""
        return {} if self.commit is None else {"name": self.name, "commit": self.commit}


def bring(name: HubName, progress: ShownProgress) -> Source:
    """Bring the files of a repository here that are needed.

    Raises:
        MissingFile: If it is not there, or leaves a choice.
        InputError: If it cannot be read, or is not what was announced.
        MachineLacks: If a package or space for it is not here.
    """
    with progress("looking up") as meter:
        origin = repository(name)
        return Source(_brought(origin, meter), name.url, origin.commit)


def open_named(text: str) -> OpenedCheckpoint:
    """Open what a user names; of what is not on this machine, headers are read and no more."""
    name = hub_name(text)
    if name is None:
        return open_anywhere(text)
    origin = repository(name)
    main = selection.select(origin).main
    if isinstance(origin, CachedRepository):
        return open_anywhere(str(origin.bring(main, _Unseen())))
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        url = origin.url(main)
        return open_headers(url, Path(folder), origin.store, name.url, origin.commit)


def _brought(origin: Origin, progress: Progress) -> Path:
    """Bring all that is needed of a place; return what is opened."""
    chosen = selection.select(origin)
    for file in chosen.beside:
        origin.bring(file, progress)
    main = origin.bring(chosen.main, progress) if chosen.main.endswith(selection.INDEX) else Path()
    files = selection.weights_of(chosen.main, main)
    selection.check_listed(origin, files)
    progress.steps(len(files))
    paths = {file: origin.bring(file, progress) for file in files}
    path = paths.get(chosen.main, main)
    return path if chosen.is_named else path.parent


def hub_name(text: str) -> HubName | None:
    """The repository that a text names, if it does: with ``hf://``, or where there is no path.

    What can only be a path stays one: ``./ORG/MODEL``, ``ORG/MODEL/``, and a name in a folder
    ``ORG`` that is there, so that a mistyped path does not bring a stranger's model.
    """
    if hub.is_hub_url(text):
        return hub.parse(text)
    path = Path(text)
    if path.as_posix() != text or not hub.looks_like_repository(path):
        return None
    return hub.parse(hub.SCHEME + text) if is_installed() and not path.exists() else None


class _Unseen:
    """Progress that nobody looks at."""

    def steps(self, count: int) -> None:
        """Ignore the number of stages."""

    def stage(self, name: str, total: int = 0, *, already: int = 0, steady: bool = False) -> None:
        """Ignore a stage."""

    def __call__(self, done: int) -> None:
        """Ignore what is done."""
