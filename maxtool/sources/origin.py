"""A place that files are brought from, and what it says of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from maxtool.weights.remote.checksum import Checksum
from maxtool.weights.remote.store import Store


class Progress(Protocol):
    """Receiver of what is done of a download."""

    def steps(self, count: int) -> None:
        """Announce the number of stages that follow."""

    def stage(self, name: str, total: int = 0, *, already: int = 0, steady: bool = False) -> None:
        """A stage begins, of so many bytes, of which some are there."""

    def __call__(self, done: int) -> None:
        """Count bytes that came since the last call."""


class Listed(NamedTuple):
    """A file as the place that has it lists it.

    Attributes:
        size: Its bytes.
        checksum: Its checksum, if that is known.
        version: What tells it from later ones under its name, such as an ETag.
    """

    size: int
    checksum: Checksum | None = None
    version: str | None = None

    def is_at(self, path: Path) -> bool:
        """Return whether a path has a file of that size."""
        return path.is_file() and path.stat().st_size == self.size


class Origin(ABC):
    """A place with the files of one model or several.

    Attributes:
        name: What is printed and recorded of it.
        asked: The file or folder in it that was named; empty for all of it.
        commit: The commit of its files, for repositories.
        listing: What it has, by paths in it.
        store: What reads its files by their URLs; None where they are on this machine.
        warnings: What may be amiss with what was found.
    """

    name: str
    asked: str
    commit: str | None = None
    listing: Mapping[str, Listed]
    store: Store | None = None
    warnings: Sequence[str] = ()

    @abstractmethod
    def bring(self, file: str, progress: Progress) -> Path:
        """Bring one listed file here, unless it is here; return where it is."""

    @abstractmethod
    def together(self, brought: Mapping[str, Path]) -> Path:
        """The folder that has files by their paths, which were brought."""

    def look_for(self, files: Iterable[str]) -> None:  # noqa: B027 - most list all they have
        """List these files too, as far as they are there."""

    def url(self, file: str) -> str:
        """The URL of a file for the store."""
        raise NotImplementedError

    @property
    def record(self) -> dict[str, object]:
        """Words of an output on where it came from."""
        return {"name": self.name}
