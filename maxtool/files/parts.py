"""The parts of an output of several files: put in their places together, or taken back.

No system renames several files at one moment. Readers begin with one part, the entry: it goes away
first and appears last, so that whoever looks in between sees no output instead of a mixture. A
record says what the parts are; by it the next run takes back what a killed process had begun.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from maxtool.files.renames import claim

MAX_RECORD_BYTES = 1 << 20


@dataclass(frozen=True)
class Moves:
    """The moves that put an output in place.

    Attributes:
        new: The folder that holds the new parts.
        old: The folder to which the old parts go.
        place: The folder in which the output appears.
        record: The file that says what the parts are.
    """

    new: Path
    old: Path
    place: Path
    record: Path

    def put(self, parts: Sequence[str], present: Sequence[str]) -> None:
        """Replace the files ``present`` by the new parts, of which the entry is the first.

        ``FileExistsError`` if another process puts a file in the way.
        """
        entry, *others = parts
        inodes = {part: _inode(self.new / part) for part in parts}
        self.record.write_text(json.dumps({"entry": entry, "inodes": inodes}))
        for name in sorted(present, key=lambda name: (name != entry, name)):
            (self.place / name).rename(self.old / name)
        for part in [*others, entry]:
            claim(self.new / part, self.place / part)

    def undo(self) -> None:
        """Take back what was moved, unless all of it was."""
        entry, inodes = self._said()
        placed = {part for part, inode in inodes.items() if _inode(self.place / part) == inode}
        if entry in placed:
            (self.new / entry).unlink(missing_ok=True)  # the same file, where it was just linked
        if not os.path.lexists(self.new / entry):
            return
        for part in placed:
            (self.new / part).unlink(missing_ok=True)  # the same file, where it was just linked
            (self.place / part).rename(self.new / part)
        for old in sorted(self.old.iterdir(), key=lambda old: (old.name == entry, old)):
            with suppress(FileExistsError):  # what another process wrote meanwhile stays
                claim(old, self.place / old.name)

    def _said(self) -> tuple[str, dict[str, int]]:
        """The entry, and the inode of each part; empty if the record is not whole."""
        try:
            with self.record.open("rb") as stream:
                said = json.loads(stream.read(MAX_RECORD_BYTES))
            entry, inodes = str(said["entry"]), dict(said["inodes"])
        except (OSError, ValueError, TypeError, KeyError):
            return "", {}
        plain = {part: inode for part, inode in inodes.items() if Path(part).name == part}
        return Path(entry).name, plain


@dataclass(slots=True)
class FolderLock:
    """A lock on a folder, by which only one process at a time moves parts in it."""

    descriptor: int | None = None

    def hold(self, folder: Path) -> None:
        """Wait for other processes, unless it is held; where there are no locks, do not."""
        if self.descriptor is None:
            self.descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let others go on."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None
