"""Names of tensors and files: their order, their parts, near misses, and what is refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from maxtool.errors import MalformedFile, UsageError

_DIGITS = re.compile(r"\d+")
# Near misses are searched among this many names at most; the search compares with each of them.
MAX_COMPARED = 20_000
# Digits beyond this are compared as text: a name must not make us build a huge integer.
MAX_DIGITS = 18
# The tensors of one file; the largest published model has 140000 in 62 files.
MAX_NAMES = 1 << 17
MAX_NAMES_CHARACTERS = 1 << 24
# Of Linux (NAME_MAX of limits.h) and macOS.
MAX_FILE_NAME_BYTES = 255

# Numbers of a name that are ordered as numbers; a key may not become much longer than its name.
MAX_NUMBERS = 8

# Problems and notes list this many names and then count the rest.
MAX_LISTED = 10


def natural_key(name: str) -> str:
    """A sort key under which ``layers.2`` comes before ``layers.10``."""
    return _DIGITS.sub(lambda match: match[0].zfill(MAX_DIGITS), name, count=MAX_NUMBERS)


def selected(names: Iterable[str], pattern: str | None = None) -> list[str]:
    """Names in natural order: those that match a shell pattern, all if there is none."""
    matching = (name for name in names if pattern is None or fnmatchcase(name, pattern))
    return sorted(matching, key=natural_key)


def is_below(name: str, prefix: str) -> bool:
    """Return whether ``name`` is ``prefix`` or continues it by whole dotted segments."""
    return not prefix or name == prefix or name.startswith(f"{prefix}.")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A sentence that offers the names closest to ``name``, or ``None`` if none is close."""
    compared = [candidate for candidate, _ in zip(known, range(MAX_COMPARED), strict=False)]
    close = difflib.get_close_matches(name, compared, n=3, cutoff=0.6)
    if not close:
        return None
    return f"did you mean {' or '.join(repr(candidate) for candidate in close)}?"


def is_utf8(text: str) -> bool:
    """Return whether a text can be written as UTF-8: surrogates stand for bytes that are not."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def listed(names: Sequence[str]) -> list[str]:
    """The first of many names, and how many more there are."""
    rest = len(names) - MAX_LISTED
    return [*names[:MAX_LISTED], *([f"and {rest} more"] if rest > 0 else [])]


def first_of(names: Sequence[str], most: int = MAX_LISTED) -> str:
    """The same as words of a sentence."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def stays_inside(name: str) -> bool:
    """Return whether the name of a file is a plain relative path, on any system."""
    if name[1:2] == ":" or name.startswith("/") or "\\" in name or "\0" in name:
        return False
    parts = name.split("/")
    return ".." not in parts and any(part not in ("", ".") for part in parts)


def check_file_name(name: str, url: str) -> None:
    """Check that a file behind a URL can have its name here; ``UsageError`` says why not."""
    longest = max(len(part.encode(errors="replace")) for part in name.split("/"))
    if longest > MAX_FILE_NAME_BYTES:
        what = f"a file's name of {longest} bytes; here it has {MAX_FILE_NAME_BYTES} at most"
        raise UsageError(what, file=url, hint="give it a shorter name on the server")
    if not name:
        what = "the URL is a folder's, and that of a file is needed"
        raise UsageError(what, file=url, hint="name a file in it")
    if not (stays_inside(name) and is_utf8(name)):
        raise UsageError(f"{name!r} is not a file's name", file=url)


class UniqueNames:
    """Names of tensors as they are found: each once, and together no longer than a budget.

    Nested containers let a small file repeat a long name in many others.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._seen: set[str] = set()
        self._left = MAX_NAMES_CHARACTERS

    def add(self, prefix: str, name: str, offset: int | None = None) -> str:
        """The whole name; it must not have been there before."""
        self._left -= len(prefix) + len(name)
        if self._left < 0 or len(self._seen) >= MAX_NAMES:
            what = f"more than {MAX_NAMES} names, or names longer together than"
            what = f"{what} {MAX_NAMES_CHARACTERS} characters"
            raise MalformedFile(what, file=self.file, offset=offset)
        whole = prefix + name
        if whole in self._seen:
            what = "the tensor is there twice"
            raise MalformedFile(what, file=self.file, tensor=whole, offset=offset)
        self._seen.add(whole)
        return whole
