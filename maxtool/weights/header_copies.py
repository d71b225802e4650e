"""Copies of files that have the headers of their originals, and nothing behind these.

They stand for checkpoints that are elsewhere while something is planned from headers. Whoever reads
a payload of one would get zeros: that is an error, which says that the file itself is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from maxtool.errors import InputError

_copies: set[Path] = set()


class PayloadNeeded(InputError):
    """The plan depends on more than headers, and these alone are here."""


@contextmanager
def header_copies(paths: Iterable[Path]) -> Iterator[None]:
    """Take files for copies of headers in the block."""
    added = {*paths}
    _copies.update(added)
    try:
        yield
    finally:
        _copies.difference_update(added)


def is_header_copy(path: Path) -> bool:
    """Return whether a file is a copy of a header."""
    return path in _copies


def check_payload(path: Path) -> None:
    """Check that a file has payloads; ``PayloadNeeded`` if it is a copy of a header."""
    if path in _copies:
        raise PayloadNeeded("more than the header of this file is needed", file=path)
