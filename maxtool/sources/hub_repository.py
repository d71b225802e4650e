"""A repository of the Hub at one commit, and what the cache has of it where there is no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

from maxtool.errors import InputError, MissingFile, TransferFailed
from maxtool.sources import hub_library
from maxtool.sources.hub_cache import HubCache
from maxtool.sources.hub_store import HubStore
from maxtool.sources.locking import own_part
from maxtool.sources.origin import Listed, Origin, Progress
from maxtool.sources.transfer import transfer
from maxtool.weights.hub import DEFAULT_REVISION, HubName, download
from maxtool.weights.names import stays_inside
from maxtool.weights.remote.checksum import DIGITS, GIT, Checksum
from maxtool.weights.remote.patience import patiently
from maxtool.weights.remote.visit import TIMEOUT

_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]+")


class HubRepository(Origin):
    """Files of a commit, brought into the cache of huggingface_hub."""

    store: HubStore

    def __init__(self, name: HubName, commit: str, listing: Mapping[str, Listed]) -> None:
        self.name, self.asked = name._replace(file="").url, name.file
        self._asked = name.url
        self.commit: str = commit
        self.listing = listing
        self.cache = HubCache(name.repository)
        self.store = HubStore()
        self._repository = name.repository

    def url(self, file: str) -> str:
        """The name of a file at this commit."""
        return HubName(self._repository, self.commit, file).url

    def bring(self, file: str, progress: Progress) -> Path:
        """Bring a file into the cache, checked against the checksum that the Hub lists."""
        listed, cache = self.listing[file], self.cache
        pointer = cache.snapshot(self.commit) / file
        digest = listed.checksum.value if listed.checksum else ""
        if listed.is_at(pointer):
            return pointer
        with cache.held(digest) as is_held:
            if listed.is_at(pointer):
                return pointer  # another process brought it meanwhile
            if not listed.is_at(cache.blob(digest)):
                with own_part(cache.part(digest), is_held=is_held) as part:
                    transfer(self.store, self.url(file), listed, part, progress)
                    part.replace(cache.blob(digest))
            return cache.link(digest, self.commit, file)

    def together(self, brought: Mapping[str, Path]) -> Path:  # noqa: ARG002 - of all files
        """The folder of the commit."""
        return self.cache.snapshot(self.commit)

    @property
    def record(self) -> dict[str, object]:
        """The name as it was given, and the commit."""
        return {"name": self._asked, "commit": self.commit}


class CachedRepository(Origin):
    """Files of a commit that the cache has."""

    def __init__(self, name: HubName, commit: str, folder: Path) -> None:
        self.name, self.asked = name._replace(file="").url, name.file
        self._asked = name.url
        self.commit: str = commit
        self._folder = folder
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        names = [file.relative_to(folder).as_posix() for file in files]
        sizes = [file.stat().st_size for file in files]
        self.listing = {name: Listed(size) for name, size in zip(names, sizes, strict=True)}

    def bring(self, file: str, progress: Progress) -> Path:  # noqa: ARG002 - nothing is to be done
        """Return the place of a file, which is here."""
        return self._folder / file

    def together(self, brought: Mapping[str, Path]) -> Path:  # noqa: ARG002 - of all files
        """The folder of the commit."""
        return self._folder

    @property
    def record(self) -> dict[str, object]:
        """The name as it was given, and the commit."""
        return {"name": self._asked, "commit": self.commit}


def repository(name: HubName) -> HubRepository | CachedRepository:
    """Look a repository up, in the cache where the Hub must not or cannot be asked.

    ``InputError`` says why it cannot be had, and what to do.
    """
    if hub_library.is_offline():
        return _cached(name, _offline(name))
    try:
        return patiently(lambda: _asked(name), Event(), where_asked=True)
    except TransferFailed as error:
        return _cached(name, error)


def _asked(name: HubName) -> HubRepository:
    """A repository as the Hub describes it."""
    with hub_library.explained(name):
        api = hub_library.library().HfApi(library_name="maxtool")
        info = api.model_info(
            name.repository, revision=name.revision, files_metadata=True, timeout=TIMEOUT
        )
        commit, files = str(info.sha), {one.rfilename: _listed(one) for one in info.siblings or ()}
    wrong = [file for file in files if not stays_inside(file)]
    if wrong or not _COMMIT.fullmatch(commit):
        what = "the Hub's description of the repository is not valid"
        raise InputError(what, file=name.url, problems=[repr(file) for file in wrong[:3]])
    found = HubRepository(name, commit, files)
    found.cache.remember(name.revision or DEFAULT_REVISION, commit)
    return found


def _listed(file: Any) -> Listed:  # noqa: ANN401 - a RepoSibling
    """The Hub's words on a file; ``ValueError`` if that is not what it must."""
    kind, digest = ("SHA-256", file.lfs.sha256) if file.lfs else (GIT, file.blob_id)
    is_digest = len(digest) == DIGITS[kind] and _DIGEST.fullmatch(digest)
    if not isinstance(file.size, int) or not is_digest:
        raise ValueError("a file without size or checksum")
    return Listed(file.size, Checksum(kind, digest))


def _cached(name: HubName, reason: InputError) -> CachedRepository:
    """A repository as the cache has it; the reason is raised if that is nothing."""
    cache = HubCache(name.repository)
    revision = name.revision or DEFAULT_REVISION
    commit = revision if _COMMIT.fullmatch(revision) else cache.commit(revision)
    if commit is None or not _COMMIT.fullmatch(commit) or not cache.snapshot(commit).is_dir():
        raise reason
    return CachedRepository(name, commit, cache.snapshot(commit))


def _offline(name: HubName) -> MissingFile:
    what = "HF_HUB_OFFLINE is set, and the cache has nothing of this repository"
    hint = f"unset it, or fetch the files where there is a network: {download(name.repository)}"
    return MissingFile(what, file=name.url, hint=hint)
