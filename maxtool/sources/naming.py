"""Names that users give to sources: paths, URLs, and repositories of the Hub."""

from __future__ import annotations

from pathlib import Path

from maxtool.files.user_cache import user_cache
from maxtool.sources import hub_library, url_cache
from maxtool.sources.hub_repository import repository
from maxtool.sources.origin import Origin
from maxtool.sources.url_origin import UrlOrigin
from maxtool.urls import is_url, local_path
from maxtool.weights import hub
from maxtool.weights.hub import HubName


def local(text: str) -> Path | None:
    """The path that a user names; None where it is the name of something elsewhere."""
    if not is_url(text):
        return Path(text) if hub_name(text) is None else None
    return local_path(text)


def origin_of(text: str, *, is_file: bool = False) -> Origin:
    """The place that a name is of, with what it has that may be needed."""
    name = hub_name(text)
    if name is not None:
        return repository(name)
    origin = UrlOrigin(text, is_file=is_file)
    if not is_file:
        origin.look_around()
    return origin


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
    if not hub_library.is_installed() or path.exists():
        return None
    return hub.parse(hub.SCHEME + text)


def caches() -> list[Path]:
    """The folders that files are brought into, of what this process knows."""
    hub_folder = [hub_library.cache()] if hub_library.is_imported() else []
    return [user_cache() / url_cache.FOLDER, *hub_folder]
