"""Names that users give to sources, and the files that they come to."""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from maxtool.errors import MissingFile
from maxtool.sources import hub_library, selection, url_cache
from maxtool.sources.hub_library import is_installed
from maxtool.sources.hub_repository import repository
from maxtool.sources.origin import Origin, Progress
from maxtool.sources.url_origin import UrlOrigin
from maxtool.weights import hub
from maxtool.weights.header_copies import header_copies
from maxtool.weights.hub import HubName
from maxtool.weights.names import did_you_mean
from maxtool.weights.opened_checkpoint import OpenedCheckpoint, open_anywhere, open_headers
from maxtool.weights.remote import fetch, original_named
from maxtool.weights.remote.url import HTTP, is_url, local_path, redacted, scheme

# Endings of files whose headers come first, and of the list of such.
HEADERS_FIRST = (".safetensors", ".gguf", ".safetensors.index.json")
ShownProgress = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint on this machine, and where it came from.

    Attributes:
        path: What is opened.
        name: What is printed of it: its path, or the name that it was brought from.
        commit: The commit of the repository that it was brought from.
        record: What an output says of where it came from; nothing of a path, which means little.
    """

    path: Path
    name: str
    commit: str | None = None
    record: Mapping[str, object] = field(default_factory=dict)


def bring(text: str, progress: ShownProgress, *, is_file: bool = False) -> Source:
    """The files that a user names, of which those that are not on this machine are brought here.

    Args:
        text: A path, a URL, or the name of a repository.
        progress: Shows what is brought.
        is_file: Whether it is one file, beside which nothing is needed.

    Raises:
        UsageError: If it is not a name of that kind.
        MissingFile: If it is not there, or leaves a choice.
        InputError: If it cannot be read, or is not what was announced.
        MachineLacks: If a package or space for it is not here.
    """
    path = local(text)
    if path is not None:
        return Source(path, text)
    with progress("looking up") as meter:
        origin = _origin(text, is_file=is_file)
        path = _one(origin, meter) if is_file else _brought(origin, meter)
        return Source(path, str(origin.record["name"]), origin.commit, origin.record)


@contextmanager
def outlined(text: str, progress: ShownProgress) -> Iterator[Source | None]:
    """Yield what a user names with nothing but headers of its weights, while the block runs.

    None where it is on this machine, or has weights whose headers cannot be read from a distance.
    ``PayloadNeeded`` is raised by who reads a payload.
    """
    if local(text) is not None:
        yield None
        return
    with ExitStack() as stack:
        with progress("looking up") as meter:
            origin = _origin(text)
            chosen = selection.select(origin)
            if origin.store is None or not chosen.main.endswith(HEADERS_FIRST):
                yield None
                return
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="maxtool-")))
            fetched = fetch(origin.url(chosen.main), folder, origin.store)
            originals = dict(fetched.urls)
            for file in chosen.beside:
                copy = folder / posixpath.relpath(file, posixpath.dirname(chosen.main) or ".")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.unlink(missing_ok=True)
                copy.symlink_to(origin.bring(file, meter).absolute())
                originals[copy] = redacted(origin.url(file))
        headers = [copy for copy in fetched.sizes if copy.suffix != selection.INDEX]
        stack.enter_context(original_named(originals))
        stack.enter_context(header_copies(headers))
        path = fetched.path if chosen.is_named else folder
        yield Source(path, str(origin.record["name"]), origin.commit, origin.record)


def open_named(text: str) -> OpenedCheckpoint:
    """Open what a user names; of what is not on this machine, headers are read and no more."""
    path = local(text)
    if path is not None:
        return open_anywhere(str(path))
    if hub_name(text) is None and scheme(text) in HTTP:  # what lies beside it is not asked for
        return open_anywhere(text)
    origin = _origin(text)
    main = selection.select(origin).main
    if origin.store is None:
        return open_anywhere(str(origin.bring(main, _Unseen())))
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        name = str(origin.record["name"])
        return open_headers(origin.url(main), Path(folder), origin.store, name, origin.commit)


def _origin(text: str, *, is_file: bool = False) -> Origin:
    """The place that a name is of, with what it has that may be needed."""
    name = hub_name(text)
    if name is not None:
        return repository(name)
    origin = UrlOrigin(text, is_file=is_file)
    if not is_file:
        origin.look_around()
    return origin


def caches() -> list[Path]:
    """The folders that files are brought into, of what this process knows."""
    hub_folder = [hub_library.cache()] if hub_library.is_imported() else []
    return [url_cache.root(), *hub_folder]


def local(text: str) -> Path | None:
    """The path that a user names; None where it is the name of something elsewhere."""
    if not is_url(text):
        return Path(text) if hub_name(text) is None else None
    return local_path(text)


def _one(origin: Origin, progress: Progress) -> Path:
    """Bring the one file that is named."""
    if origin.asked not in origin.listing:
        what = f"there is no {origin.asked}" if origin.asked else "a file is to be named"
        hint = did_you_mean(origin.asked, origin.listing)
        raise MissingFile(what, file=origin.name, hint=hint)
    return origin.together({origin.asked: origin.bring(origin.asked, progress)}) / origin.asked


def _brought(origin: Origin, progress: Progress) -> Path:
    """Bring all that is needed of a place; return what is opened."""
    chosen = selection.select(origin)
    brought = {file: origin.bring(file, progress) for file in chosen.beside}
    main = origin.bring(chosen.main, progress) if chosen.main.endswith(selection.INDEX) else Path()
    files = selection.weights_of(chosen.main, main)
    origin.look_for(files)
    selection.check_listed(origin, files)
    progress.steps(len(files))
    brought |= {file: origin.bring(file, progress) for file in files}
    brought.setdefault(chosen.main, main)
    path = origin.together(brought) / chosen.main
    return path if chosen.is_named else path.parent


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
    return hub.parse(hub.SCHEME + text) if is_installed() and not path.exists() else None


class _Unseen:
    """Progress that nobody looks at."""

    def steps(self, count: int) -> None:
        """Ignore the number of stages."""

    def stage(self, name: str, total: int = 0, *, already: int = 0, steady: bool = False) -> None:
        """Ignore a stage."""

    def __call__(self, done: int) -> None:
        """Ignore what is done."""
