"""Files with a text on each line."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import BadInput, reading

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # some editors write it first, as a byte order mark


def lines_of(
    path: Path, what: str, most: int, show: Callable[[float], None] = lambda _share: None
) -> Iterator[str]:
    """The lines of a file, or of stdin for ``-``; the beginnings of those over ``most`` bytes.

    A byte order mark before the first is left out.

    Messages call them ``what``; ``show`` is told the share of the file that was read.
    """
    with reading(what, path):
        stdin = str(path) == "-"
        with sys.stdin.buffer if stdin else path.open("rb") as stream:
            size = 0 if stdin else path.stat().st_size
            for number, (line, read) in enumerate(_bounded(stream, most), start=1):
                show(read / size if size else 0.0)
                cut = len(line) == most and not line.endswith(b"\n")
                text = _decoded(line, path, number, whole=not cut)
                yield text.removeprefix(MARK) if number == 1 else text


def _bounded(stream: BinaryIO, most: int) -> Iterator[tuple[bytes, int]]:
    """The beginning of each line, and how many bytes were read with it."""
    read = 0
    while line := stream.readline(most):
        read, end = read + len(line), line
        while len(end) == most and not end.endswith(b"\n"):
            end = stream.readline(most)
            read += len(end)
        yield line, read


def _decoded(line: bytes, path: Path, number: int, *, whole: bool) -> str:
    """The text of a line; half a character at its end, where it was cut, is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(line, final=whole).rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadInput(f"no UTF-8 text in line {number}", file=path) from None
