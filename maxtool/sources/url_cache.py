"""The cache of what was brought by URL, below the user's cache folder.

For each remote folder there is one here: contents in ``blobs``, by what tells each version from
others, and in ``snapshots`` folders of links to them, so that files that belong together lie side
by side. Contents are never changed; all of it may be deleted while nothing runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from maxtool.files.user_cache import user_cache
from maxtool.sources.locking import locked, new_name
from maxtool.sources.origin import Listed
from maxtool.urls import identity, redacted

FOLDER = "urls"


class UrlCache:
    """Files that are kept of one remote folder.

    Args:
        url: Its URL. Who asks for it, user, password and signature, makes no difference.
    """

    def __init__(self, url: str) -> None:
        place = redacted(url).partition("://")[2]
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", place).strip("-.")[-60:]
        self._folder: Path = user_cache() / FOLDER / f"{name}-{_key(identity(url))}"

    def blob(self, file: str, listed: Listed) -> Path:
        """The place of a version of a file."""
        known = [file, listed.version, listed.size, listed.checksum]
        return self._folder / "blobs" / _key(json.dumps(known))

    def content(self, digest: str) -> Path:
        """The place of a content of which no version is known, by its SHA-256."""
        return self._folder / "blobs" / digest

    def nameless(self) -> AbstractContextManager[Path]:
        """A place for a content that is on its way and has no version: of this process alone."""
        return new_name(self._folder / "blobs")

    @contextmanager
    def held(self, blob: Path) -> Iterator[bool]:
        """Keep other processes from bringing a content; yields whether they are."""
        with locked(self._folder / "locks" / f"{blob.name}.lock") as is_held:
            yield is_held

    def snapshot(self, brought: Mapping[str, Path]) -> Path:
        """A folder that has contents by the names of their files, and nothing else."""
        names = sorted((file, blob.name) for file, blob in brought.items())
        folder = self._folder / "snapshots" / _key(json.dumps(names))
        with self.held(folder):
            for file, blob in brought.items():
                _link(folder / file, blob)
        return folder


def _link(pointer: Path, blob: Path) -> None:
    """Put a content at a place: a link, or a copy where there are none."""
    if pointer.is_file() and pointer.stat().st_size == blob.stat().st_size:
        return
    with new_name(pointer.parent) as path:
        try:
            path.symlink_to(os.path.relpath(blob, pointer.parent))
        except OSError:
            try:
                path.hardlink_to(blob)
            except OSError:
                shutil.copyfile(blob, path)
        path.replace(pointer)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
