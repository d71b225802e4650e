"""stdout and stderr as programs get them: closed, full, or of an encoding that lacks characters."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

# What is drawn, where an encoding has no such character: each as wide as the original.
PLAIN = str.maketrans("\N{MULTIPLICATION SIGN}·└├│─━╸╺…•±µ", "x-`||-=--~*~u")
ERRORS = "maxtool.plain"


class Unwritable(Exception):
    """stdout takes no more.

    Attributes:
        gone: Whether that is because its reader went away.
        reason: Why, in the system's words.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.gone = error.errno == errno.EPIPE
        self.reason = error.strerror or str(error)


def prepare() -> None:
    """Make both streams of this process fit for whatever is written to them.

    Where stdout fails, :class:`Unwritable` is raised, once. Where stderr fails, there is nobody to
    tell: the work goes on. Characters that an encoding lacks are written as others or as escapes.
    """
    prepare_errors()
    sys.stdout = _prepared(sys.stdout, tells=True)
    sys.stderr = _prepared(sys.stderr, tells=False)


def prepare_errors() -> None:
    """Make :data:`ERRORS` the name of how characters are written that an encoding lacks."""
    codecs.register_error(ERRORS, _plain)


def _prepared(stream: TextIO | None, *, tells: bool) -> TextIO:
    if stream is None:  # it was closed before the program began
        return Path(os.devnull).open("w", encoding="utf-8")
    raw: Any = _Descriptor(stream.fileno(), tells=tells)
    unbuffered = isinstance(stream, io.TextIOWrapper) and stream.write_through
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=ERRORS,
        line_buffering=stream.isatty() or not tells,
        write_through=unbuffered,
    )


class _Descriptor(io.FileIO):
    """A file descriptor that fails once at most, so that nothing is left to fail at exit."""

    def __init__(self, descriptor: int, *, tells: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._tells = tells
        self._failed = False

    def write(self, data: Any) -> int:  # noqa: ANN401 - as the base class has it
        nbytes = memoryview(data).nbytes
        if nbytes and not self._failed:
            try:
                return super().write(data)
            except OSError as error:
                self._failed = True
                if self._tells:
                    raise Unwritable(error) from None
        return nbytes


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The replacement for characters that an encoding lacks: look-alikes, else escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_spelled(error)), error.end


def _spelled(error: UnicodeEncodeError) -> Iterator[str]:
    for char in error.object[error.start : error.end]:
        plain = char.translate(PLAIN)
        yield plain if plain.isascii() else char.encode("unicode_escape").decode()
