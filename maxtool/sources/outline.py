"""Sources opened by the headers of their weights alone."""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from maxtool.sources import selection
from maxtool.sources.bringing import ShownProgress, Source, brought_from
from maxtool.sources.naming import hub_name, local, origin_of
from maxtool.urls import HTTP, redacted, scheme
from maxtool.weights.header_copies import header_copies
from maxtool.weights.opened_checkpoint import OpenedCheckpoint, open_anywhere, open_headers
from maxtool.weights.remote import fetch, original_named

# Endings of files whose headers come first, and of the list of such.
HEADERS_FIRST = (".safetensors", ".gguf", ".safetensors.index.json")


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
            origin = origin_of(text)
            chosen = selection.select(origin)
            if origin.store is None or not chosen.main.endswith(HEADERS_FIRST):
                yield None
                return
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="maxtool-")))
            fetched = fetch(origin.url(chosen.main), folder, origin.store)
            originals, copies = dict(fetched.urls), [*fetched.sizes]
            brought = {file: origin.bring(file, meter) for file in chosen.beside}
            configs, layers = selection.of_modules(origin, chosen.main, brought)
            whole = [file for file in layers if not file.endswith(HEADERS_FIRST)]
            for file in layers:
                if file not in whole:
                    place = _beside(folder, file, chosen.main).parent
                    of_layer = fetch(origin.url(file), place, origin.store)
                    originals |= of_layer.urls
                    copies += of_layer.sizes
            brought |= {file: origin.bring(file, meter) for file in (*configs, *whole)}
            for file, content in brought.items():
                copy = _beside(folder, file, chosen.main)
                copy.unlink(missing_ok=True)
                copy.symlink_to(content.absolute())
                originals[copy] = redacted(origin.url(file))
        headers = [copy for copy in copies if copy.suffix != selection.INDEX]
        stack.enter_context(original_named(originals))
        stack.enter_context(header_copies(headers))
        path = fetched.path if chosen.is_named else folder
        yield brought_from(origin, path)


def _beside(folder: Path, file: str, main: str) -> Path:
    """The place of a file's copy in a folder that has that of ``main``; its own folder is made."""
    copy = folder / posixpath.relpath(file, posixpath.dirname(main) or ".")
    copy.parent.mkdir(parents=True, exist_ok=True)
    return copy


def open_named(text: str) -> OpenedCheckpoint:
    """Open what a user names; of what is not on this machine, headers are read and no more."""
    path = local(text)
    if path is not None:
        return open_anywhere(str(path))
    if hub_name(text) is None and scheme(text) in HTTP:  # what lies beside it is not asked for
        return open_anywhere(text)
    origin = origin_of(text)
    main = selection.select(origin).main
    if origin.store is None:
        return open_anywhere(str(origin.bring(main, _Unseen())))
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        name = str(origin.record["name"])
        return open_headers(origin.url(main), Path(folder), origin.store, name, origin.commit)


class _Unseen:
    """Progress that nobody looks at."""

    def steps(self, count: int) -> None:
        """Ignore the number of stages."""

    def stage(self, name: str, total: int = 0, *, already: int = 0, steady: bool = False) -> None:
        """Ignore a stage."""

    def __call__(self, done: int) -> None:
        """Ignore what is done."""
