"""Protocol of a store of files, and the parts that all stores share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Piece(NamedTuple):
    """Bytes of a file, and the size of all of it."""

    data: bytes
    total: int


class Described(NamedTuple):
    """A file as its server describes it.

    Attributes:
        size: Its bytes.
        version: What tells it from later ones; None if the server does not say.
        headers: What else was said, by names in small letters.
        first: Its first byte, where that came alone.
    """

    size: int
    version: str | None
    headers: Mapping[str, str]
    first: bytes


class Store(ABC):
    """Reads ranges of files by URL, and counts what that takes.

    Attributes:
        requests: How many ranges were asked for.
        nbytes: How many bytes came back.
        stopped: Set once no more is to be read.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.nbytes = 0
        self.stopped = threading.Event()
        self._lock = threading.Lock()

    def read(self, url: str, start: int, count: int) -> Piece:
        """Read ``count`` bytes from ``start`` on, fewer only where the file ends.

        ``MissingFile`` is also a file that may not be read, ``ChangedFile`` one that is not what
        was described, ``InputError`` an answer that is not what was asked for, and
        ``TransferFailed`` one that may be right another time.
        """
        piece = self._read(url, start, count)
        with self._lock:
            self.requests += 1
            self.nbytes += len(piece.data)
        return piece

    def stop(self) -> None:
        """Stop every read in flight soon, and refuse new ones."""
        self.stopped.set()

    def describe(self, url: str) -> Described:
        """Look a file up; what is read of it later has to be of that version."""
        raise NotImplementedError

    def listed(self, url: str) -> dict[str, int] | None:  # noqa: ARG002 - few can
        """The sizes of files in a folder and the folders in it; None where nobody tells them."""
        return None

    def has_ranges(self, url: str) -> bool:  # noqa: ARG002 - most know no other files
        """Return whether ranges of a file can be read, not only all of it by ``stream``."""
        return True

    def stream(self, url: str) -> Iterator[Piece]:
        """Read all of a file from its beginning; raises what ``read`` does."""
        raise NotImplementedError

    def check_same(self, url: str) -> None:  # noqa: B027 - for stores whose pieces do not say it
        """Check that a file that was described is still that one; ``ChangedFile`` if it is not."""

    @abstractmethod
    def _read(self, url: str, start: int, count: int) -> Piece: ...
