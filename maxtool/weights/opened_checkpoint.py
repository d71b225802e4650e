"""A checkpoint wherever it lies: on disk, or behind a URL with nothing but its headers at hand."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from maxtool.errors import InputError
from maxtool.urls import is_url, redacted
from maxtool.weights.checkpoint import Checkpoint, open_checkpoint
from maxtool.weights.remote import FetchedHeaders, fetch, original_named
from maxtool.weights.remote.store import Store
from maxtool.weights.stored_weight import StoredWeight


@dataclass(frozen=True, slots=True)
class OpenedCheckpoint:
    """A checkpoint and where it came from.

    Attributes:
        checkpoint: Its tensors; those of a remote one cannot be read.
        location: Its path, or its URL without credentials.
        remote: What was fetched, if it lies behind a URL.
        commit: The commit of a repository that it is of.
    """

    checkpoint: Checkpoint
    location: str
    remote: FetchedHeaders | None = None
    commit: str | None = None

    @property
    def name(self) -> str:
        """The last part of the location."""
        if self.remote is None:
            return self.checkpoint.path.resolve().name
        return self.location.rstrip("/").rpartition("/")[2]

    def shown(self, file: Path) -> str:
        """A file of the checkpoint, as it may be printed."""
        return str(file) if self.remote is None else self.remote.urls[file]

    def nbytes(self, file: Path) -> int:
        """The size of a file of the checkpoint."""
        return file.stat().st_size if self.remote is None else self.remote.sizes[file]

    def read(self, name: str) -> StoredWeight:
        """A tensor, to be read part by part; the checkpoint must not be remote."""
        self.need_payloads()
        return self.checkpoint.stored(name)

    def need_payloads(self) -> None:
        """Check that payloads can be read: that the checkpoint is not remote."""
        if self.remote is not None:
            what = "only the headers of remote files are read, not their payloads"
            raise InputError(what, file=self.location, hint="download the file and inspect it here")


def open_anywhere(text: str) -> OpenedCheckpoint:
    """Open what ``open_checkpoint`` or ``fetch`` takes: a path, or headers behind a URL."""
    if not is_url(text):
        return OpenedCheckpoint(open_checkpoint(Path(text)), text)
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        return open_headers(text, Path(folder), None, redacted(text))


def open_headers(
    url: str, folder: Path, store: Store | None, location: str, commit: str | None = None
) -> OpenedCheckpoint:
    """Open headers behind a URL, fetched into an empty folder, which may be removed afterwards.

    ``store`` reads them, as in :func:`maxtool.weights.remote.fetch`.
    """
    remote = fetch(url, folder, store)
    with original_named(remote.urls):
        checkpoint = open_checkpoint(remote.path, payloads=False)
    return OpenedCheckpoint(checkpoint, location, remote, commit)
