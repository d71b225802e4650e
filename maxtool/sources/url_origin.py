"""A folder behind a URL, whose files are brought into the cache of URLs.

Where nothing lists what is in it, files are asked for by their usual names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit, urlunsplit

from maxtool.errors import AccessRefused, MissingFile
from maxtool.files import sha256
from maxtool.sources.locking import own_part
from maxtool.sources.origin import Listed, Origin, Progress
from maxtool.sources.selection import BESIDE, MAIN
from maxtool.sources.transfer import transfer
from maxtool.sources.url_cache import UrlCache
from maxtool.urls import HTTP, file_name, inside, redacted, scheme
from maxtool.weights import hub
from maxtool.weights.names import check_file_name, stays_inside
from maxtool.weights.remote.announced import announced
from maxtool.weights.remote.filesystem import FilesystemStore
from maxtool.weights.remote.http import HttpStore
from maxtool.weights.remote.patience import patiently
from maxtool.weights.remote.store import Store

AT_ONCE = 8  # requests side by side
# Endings of files with weights, and of what lists them: any other URL is a folder's.
ENDINGS = frozenset(
    (".safetensors", ".gguf", ".json", ".bin", ".pth", ".pt", ".onnx", ".npz", ".npy")
)


class UrlOrigin(Origin):
    """Files of one remote folder.

    Args:
        url: The folder, or a file in it.
        is_file: Whether it is a file, whatever its name says.
    """

    store: Store
    listing: dict[str, Listed]
    warnings: list[str]

    def __init__(self, url: str, *, is_file: bool = False) -> None:
        name, parts = file_name(url), urlsplit(url)
        is_file = is_file or Path(name).suffix.lower() in ENDINGS
        folder = parts.path.rpartition("/")[0] if is_file else parts.path.rstrip("/")
        self.name, self.asked, self.listing = redacted(url), name if is_file else "", {}
        self.store = HttpStore(math.inf) if scheme(url) in HTTP else FilesystemStore()
        self.warnings = []
        # With what gives access: they are asked for, and neither printed nor recorded.
        self._given, self._folder = url, urlunsplit(parts._replace(path=folder))
        self._cache = UrlCache(self._folder)
        self._described: set[str] = set()
        self._brought: dict[str, Listed] = {}
        if is_file:
            self._look(name)

    def look_around(self) -> None:
        """List what may belong to a model; ``MissingFile`` if nothing is there."""
        if self.asked:
            self._warn(self._look_all(() if self.asked.endswith(".gguf") else BESIDE))
            return
        listed = self.store.listed(self._folder)
        if listed is not None:
            inside = {file: size for file, size in listed.items() if stays_inside(file)}
            self.listing |= {file: Listed(size) for file, size in inside.items()}
            return
        problems = self._look_all((*MAIN, *BESIDE))
        if not self.listing.keys() & {*MAIN}:
            errors = list(problems.values())
            telling = [one for one in errors if isinstance(one, AccessRefused)] or errors
            repository = hub.behind(self.name)
            hint = f"asked for: {', '.join(MAIN)}; name another file by its own URL"
            hint = f"name it {hub.SCHEME}{repository}" if repository else hint
            raise MissingFile(telling[0].what, file=self.name, hint=hint)
        self._warn(problems)

    def look_for(self, files: Iterable[str]) -> None:
        """Ask for these files too."""
        problems = self._look_all([file for file in files if file not in self.listing])
        for refused in problems.values():
            if isinstance(refused, AccessRefused):
                raise refused

    def url(self, file: str) -> str:
        """The URL of a file; that of the file which was named is as it was given."""
        if file == self.asked:
            return self._given
        return inside(self._folder, file)

    def _warn(self, problems: Mapping[str, MissingFile]) -> None:
        """Warn of files that were not given: they are not known to be absent.

        It is no error, as S3 tells who may not list a bucket of absent files that access to them is
        refused, and the signature of one file is not that of those beside it.
        """
        refused: dict[str, list[str]] = {}
        for file, error in problems.items():
            if isinstance(error, AccessRefused):
                refused.setdefault(error.what, []).append(file)
        self.warnings += [
            f"taken for absent in {redacted(self._folder)}: {', '.join(files)} ({what})"
            for what, files in refused.items()
        ]

    def _look_all(self, files: Sequence[str]) -> dict[str, MissingFile]:
        """Ask for files side by side; return why some cannot be had."""

        def look(file: str) -> MissingFile | None:
            try:
                self._look(file)
            except MissingFile as error:
                return error
            return None

        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                found = zip(files, pool.map(look, files), strict=True)
                return {file: error for file, error in found if error is not None}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.store.stop()
                raise

    def _look(self, file: str) -> None:
        """List a file, as its server describes it."""
        check_file_name(file, self.name)
        url, begun = self.url(file), bool(self._brought)
        told = patiently(lambda: self.store.describe(url), Event(), where_asked=not begun)
        if told.headers.get("content-type", "").startswith("text/html"):
            what = "the server sends a page of HTML, perhaps to log in, and not the file"
            raise AccessRefused(what, file=redacted(url))
        checksum = announced(told.headers, told.first, told.size)
        self.listing[file] = Listed(told.size, checksum, told.version)
        self._described.add(file)

    def bring(self, file: str, progress: Progress) -> Path:
        """Bring a file into the cache, unless this version of it is there."""
        if file not in self._described:
            self._look(file)
        listed = self._brought[file] = self.listing[file]
        if listed.version is None:
            return self._brought_anew(file, listed, progress)
        blob = self._cache.blob(file, listed)
        if listed.is_at(blob):
            return blob
        with self._cache.held(blob) as is_held:
            if not listed.is_at(blob):
                with own_part(blob.with_suffix(".incomplete"), is_held=is_held) as part:
                    transfer(self.store, self.url(file), listed, part, progress)
                    part.replace(blob)
        return blob

    def _brought_anew(self, file: str, listed: Listed, progress: Progress) -> Path:
        """Bring a file of which nobody can say whether it is another one by now."""
        with self._cache.nameless() as part:
            transfer(self.store, self.url(file), listed, part, progress)
            return part.replace(self._cache.content(sha256(part)))

    def together(self, brought: Mapping[str, Path]) -> Path:
        """A folder of links to the files in the cache."""
        return self._cache.snapshot(brought)

    @property
    def record(self) -> dict[str, object]:
        """The URL without what gives access, and what was told of each file that was brought."""
        told = {
            file: {"version": listed.version, "bytes": listed.size}
            for file, listed in sorted(self._brought.items())
        }
        return {"name": self.name, "files": told}
