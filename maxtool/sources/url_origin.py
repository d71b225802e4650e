"""A folder behind a URL, whose files are brought into the cache of URLs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from maxtool.files import sha256
from maxtool.sources.origin import Listed, Origin, Progress
from maxtool.sources.transfer import transfer
from maxtool.sources.url_cache import UrlCache
from maxtool.weights.remote.store import Store
from maxtool.weights.remote.url import redacted


class UrlOrigin(Origin):
    """Files of one remote folder.

    Attributes:
        given: The URL as it was given, with what gives access.
        folder_url: The URL of the folder, likewise.
    """

    store: Store
    listing: dict[str, Listed]

    def __init__(self, url: str, asked: str, store: Store) -> None:
        parts = urlsplit(url)
        folder = parts.path.rpartition("/")[0] if asked else parts.path.rstrip("/")
        self.given, self.folder_url = url, urlunsplit(parts._replace(path=folder))
        self.name, self.asked, self.store, self.listing = redacted(url), asked, store, {}
        self.cache = UrlCache(self.folder_url)
        self._brought: dict[str, Listed] = {}

    @abstractmethod
    def look_around(self) -> None:
        """List what may belong to a model."""

    def bring(self, file: str, progress: Progress) -> Path:
        """Bring a file into the cache, unless this version of it is there."""
        listed = self._brought[file] = self.listing[file]
        if listed.version is None:
            return self._brought_anew(file, listed, progress)
        blob = self.cache.blob(file, listed)
        if not blob.is_file():
            with self.cache.held(blob):
                if not blob.is_file():
                    part = blob.with_suffix(".incomplete")
                    transfer(self.store, self.url(file), listed, part, progress)
                    part.replace(blob)
        return blob

    def _brought_anew(self, file: str, listed: Listed, progress: Progress) -> Path:
        """Bring a file of which nobody can say whether it is another one by now."""
        part = self.cache.nameless()
        try:
            part.unlink(missing_ok=True)
            transfer(self.store, self.url(file), listed, part, progress)
            return part.replace(self.cache.content(sha256(part)))
        finally:
            part.unlink(missing_ok=True)

    def together(self, brought: Mapping[str, Path]) -> Path:
        """A folder of links to the files in the cache."""
        return self.cache.snapshot(brought)

    @property
    def record(self) -> dict[str, object]:
        """The URL without what gives access, and what was told of each file that was brought."""
        told = {
            file: {"version": listed.version, "bytes": listed.size}
            for file, listed in sorted(self._brought.items())
        }
        return {"name": self.name, "files": told}
