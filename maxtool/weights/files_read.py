"""Record of the files that work reads, whichever of them it turns out to need.

Whoever opens a file of a source notes it here; an output says what it was made from by that, and a
list of what might be read, kept beside the code that reads, cannot fall behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

# The records of the blocks around the code that runs, the outer ones first.
_records: ContextVar[tuple[dict[Path, None], ...]] = ContextVar("records", default=())


@contextmanager
def files_noted() -> Iterator[dict[Path, None]]:
    """Yield the paths that are opened in the block, in order; those of inner blocks are among them.

    Threads that the block starts note nothing.
    """
    record: dict[Path, None] = {}
    token = _records.set((*_records.get(), record))
    try:
        yield record
    finally:
        _records.reset(token)


def note_read(path: Path) -> None:
    """Note that a file is opened to be read, under the path by which it is."""
    for record in _records.get():
        record.setdefault(path)


def named(paths: Iterable[Path], *sources: Path) -> dict[str, Path]:
    """Files by their names relative to the source that they are part of, in the order of these.

    A source that is a file stands for its folder. A file from elsewhere has its own name; where
    that is taken, with a number behind it.
    """
    folders = [source if source.is_dir() else source.parent for source in sources]
    result: dict[str, Path] = {}
    for path in dict.fromkeys(paths):
        inside = [path.relative_to(one) for one in folders if path.is_relative_to(one)]
        name = min(inside, key=lambda one: len(one.parts), default=Path(path.name)).as_posix()
        count = sum(known.partition("#")[0] == name for known in result)
        result[f"{name}#{count + 1}" if count else name] = path
    return dict(sorted(result.items()))
