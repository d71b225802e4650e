"""Writing to the streams of the program."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .errors import RunError
from .options import CommonOptions

BAR = 40  # characters of a progress bar


def printable(text: str) -> str:
    """Text with everything that a terminal might act on written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def emit(text: str) -> None:
    """Write data to stdout at once."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError:  # Python would write what is left again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def emit_text(text: str) -> None:
    """Write generated text; on a terminal without control characters other than line ends.

    Joiners and wide spaces stay, which are no control characters but part of many scripts.
    """
    if sys.stdout.isatty():
        text = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")
    emit(text)


def emit_json(schema: str, content: Mapping[str, object]) -> None:
    """Write one JSON object to stdout."""
    emit(json.dumps({"schema": schema, **content}, indent=2) + "\n")


def note(options: CommonOptions, text: str) -> None:
    """Write something worth knowing to stderr."""
    if not options.quiet:
        sys.stderr.write(f"{printable(text)}\n")


def complain(error: RunError) -> None:
    """Print an error on stderr, laid out as maxtool does."""
    for line in error.lines():
        sys.stderr.write(f"{printable(line)}\n")


def open_streams() -> None:
    """Replace standard streams that were closed before the program began."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115


@contextmanager
def bar(options: CommonOptions, *, hidden: bool) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal; gives what is told the share that is done, 0 if unknown.

    It is ``hidden`` where it would stand between the lines of the output.
    """
    if hidden or options.quiet or options.json or not sys.stderr.isatty():
        yield lambda _share: None
        return
    drawn = -1

    def show(share: float) -> None:
        nonlocal drawn
        percent = int(share * 100)
        if percent > drawn:
            drawn = percent
            done = percent * BAR // 100
            sys.stderr.write(f"\r[{'#' * done}{'.' * (BAR - done)}] {percent}%")
            sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K" if drawn >= 0 else "")
