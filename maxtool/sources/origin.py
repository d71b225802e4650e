"""A place that files are brought from, and what it says of them."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from hashlib import _Hash


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
        sha256: Its checksum, if that is known: the Hub says it of files in Git LFS.
        git_id: The id of its content in Git, a SHA-1, for the Hub's other files.
        version: What tells it from later ones under its name, such as an ETag.
    """

    size: int
    sha256: str | None = None
    git_id: str | None = None
    version: str | None = None

    @property
    def digest(self) -> str | None:
        """The checksum that is known of it, if there is one."""
        return self.sha256 or self.git_id

    def hasher(self) -> _Hash:
        """The function of that checksum, which is to be given all bytes of the file.

        Git hashes the content of a file behind a header: https://git-scm.com/book, chapter 10.2.
        """
        if self.sha256 or not self.git_id:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)


class Origin(ABC):
    """A place with the files of one model or several.

    Attributes:
        name: What is printed and recorded of it.
        asked: The file or folder in it that was named; empty for all of it.
        commit: The commit of its files, for repositories.
        listing: What it has, by paths in it.
    """

    name: str
    asked: str
    commit: str | None = None
    listing: Mapping[str, Listed]

    @abstractmethod
    def bring(self, file: str, progress: Progress) -> Path:
        """Bring one listed file here, unless it is here; its folder holds the others."""
