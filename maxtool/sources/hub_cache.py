"""The cache of huggingface_hub, which other programs read too.

Its layout is documented (https://huggingface.co/docs/huggingface_hub/guides/manage-cache): contents
in ``blobs``, by their checksums; in ``snapshots`` a folder of links to them for each commit; in
``refs`` the commits of branches and tags.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from maxtool.files.staging import staged
from maxtool.sources.hub_library import cache
from maxtool.sources.locking import locked, new_name


class HubCache:
    """The files of one repository in the cache."""

    def __init__(self, repository: str) -> None:
        from huggingface_hub.file_download import repo_folder_name

        root = cache()
        name = repo_folder_name(repo_id=repository, repo_type="model")
        self._folder: Path = root / name
        self._locks: Path = root / ".locks" / name

    def blob(self, digest: str) -> Path:
        """The place of a content."""
        return self._folder / "blobs" / digest

    def part(self, digest: str) -> Path:
        """The place of a content of which something is missing."""
        return self._folder / "blobs" / f"{digest}.maxtool.incomplete"

    def snapshot(self, commit: str) -> Path:
        """The folder of a commit."""
        return self._folder / "snapshots" / commit

    def commit(self, revision: str) -> str | None:
        """The commit that a branch or tag was when it was asked for last."""
        try:
            return (self._folder / "refs" / revision).read_text(encoding="ascii").strip() or None
        except (OSError, ValueError):
            return None

    def remember(self, revision: str, commit: str) -> None:
        """Note the commit that a branch or tag is; not where the cache may only be read."""
        file = self._folder / "refs" / revision
        if revision == commit or self.commit(revision) == commit:
            return
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with staged(file) as path:
                path.write_text(commit, encoding="ascii")

    def link(self, digest: str, commit: str, file: str) -> Path:
        """Put a content into the folder of a commit: a link, or itself where there are none.

        What is there is replaced at once, as others may be about to open it.
        """
        blob, pointer = self.blob(digest), self.snapshot(commit) / file
        pointer.parent.mkdir(parents=True, exist_ok=True)
        with new_name(blob.parent) as link:
            try:
                link.symlink_to(os.path.relpath(blob, pointer.parent))
            except OSError:
                link = blob
            link.replace(pointer)
        return pointer

    @contextmanager
    def held(self, digest: str) -> Iterator[bool]:
        """Keep other processes from bringing a content, by the lock that the library takes.

        Yields whether they are.
        """
        with locked(self._locks / f"{digest}.lock") as is_held:
            yield is_held
