"""Finished parts of an output that was interrupted, as the journal in its hidden folder has them.

The journal is lines of JSON. The first says what the output is made of, each other one a part that
was flushed to the disk before, with its size and its SHA-256. A line that was cut off, and all
behind it, counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxtool.files.hashing import sha256

JOURNAL, NEW = "journal", "new"
MAX_BYTES = 1 << 26

# What an output is made of: what a user knows it by, and a text that differs where it does.
MadeOf = Mapping[str, str]
Remarks = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class FinishedPart:
    """A part of an output that was written and flushed.

    Attributes:
        name: Its path below the folder of new parts.
        nbytes: Its size.
        sha256: Its checksum, in hexadecimal.
        remarks: What was to be said about it, by kind.
    """

    name: str
    nbytes: int
    sha256: str
    remarks: Remarks

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> FinishedPart:
        """The part that a line of a journal describes; ValueError or KeyError if it does not."""
        remarks = {str(kind): [str(text) for text in texts] for kind, texts in said["remarks"]}
        return cls(str(said["name"]), int(said["bytes"]), str(said["sha256"]), remarks)

    @property
    def line(self) -> dict[str, object]:
        """The line of a journal."""
        remarks = [[kind, list(texts)] for kind, texts in self.remarks.items()]
        said = {"name": self.name, "bytes": self.nbytes, "sha256": self.sha256}
        return {**said, "remarks": remarks}

    def is_at(self, path: Path, progress: Callable[[int], None] | None = None) -> bool:
        """Return whether a file is this part; ``progress`` is told the bytes of each read."""
        regular = path.is_file() and not path.is_symlink()
        same = regular and path.stat().st_size == self.nbytes
        return same and sha256(path, progress) == self.sha256


@dataclass(frozen=True)
class Found:
    """The journal of an earlier run.

    Attributes:
        made_of: What the output is made of.
        parts: The parts that are finished, by name.
        nbytes: The length of the journal as far as it is whole.
    """

    made_of: MadeOf
    parts: Mapping[str, FinishedPart]
    nbytes: int = 0


NOTHING = Found({}, {})


def found(hidden: Path) -> Found:
    """The journal in a hidden folder; one of no parts if it has none, or the output is in place."""
    try:
        with (hidden / JOURNAL).open("rb") as stream:
            lines = list(_lines(stream.read(MAX_BYTES)))
        (first, end), others = lines[0], [said for said, _ in lines[1:]]
        made_of = {str(key): str(value) for key, value in first["made of"]}
        parts = [FinishedPart.parse(said) for said in others if "sha256" in said]
        placed = any(_is_gone(hidden / NEW, said) for said in others if "inode" in said)
        placed = placed or not (hidden / NEW).is_dir()
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError):
        return NOTHING
    end = lines[-1][1]
    return NOTHING if placed else Found(made_of, {part.name: part for part in parts}, end)


def prune(hidden: Path, kept: Mapping[str, FinishedPart]) -> None:
    """Remove from the new parts in a hidden folder what is not finished."""
    new = hidden / NEW
    for path in new.rglob("*"):
        if path.relative_to(new).as_posix() not in kept and (path.is_symlink() or path.is_file()):
            with suppress(OSError):
                path.unlink()


def _lines(raw: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """The objects, each with the position at which its line ends."""
    end = 0
    for line in raw.splitlines(keepends=True):
        end += len(line)
        try:
            said = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        yield said, end


def _is_gone(new: Path, said: Mapping[str, Any]) -> bool:
    """Return whether what was about to be renamed is no longer among the new parts."""
    try:
        return bool((new / str(said["entry"])).lstat().st_ino != said["inode"])
    except OSError:
        return True
