"""Lines of a TOML file on which its tables and keys stand, which Python's parser does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

Path = tuple[str, ...]

_PART = r"""(?:[\w-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_QUOTES = re.compile(r'"""' + r"|'''")


def lines_of(text: str) -> dict[Path, int]:
    """The line of each table and key, counted from 1, by its path from the root.

    It is for messages on a file that was parsed: what stands inside others on one line has none.
    """
    found: dict[Path, int] = {}
    table: Path = ()
    for number, line in _outside_texts(text):
        if header := _HEADER.match(line):
            table = _path(header[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault((*table, *_path(key[1])), number)
    return found


def _outside_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin outside of texts of several lines."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if not inside:
            yield number, line
        inside ^= len(_QUOTES.findall(line)) % 2 == 1


def _path(dotted: str) -> Path:
    """The parts of a dotted key."""
    try:
        content: object = tomllib.loads(f"{dotted} = 0")
    except ValueError:  # part of a list of several lines, which only looks like a key
        return ()
    parts = []
    while isinstance(content, dict):
        ((part, content),) = content.items()
        parts.append(part)
    return tuple(parts)
