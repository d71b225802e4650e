"""The hidden folder in which an output is made.

``.NAME.maxtool-xxxxxxxx`` holds ``lock``, which says what is made on which machine, ``new/NAME``,
which is being written, and ``old/NAME``, which was in the way where names cannot be exchanged. An
output of several files has all of them in ``new``, and ``parts`` says which they are; ``journal``
says which of the new files are finished, where a later run is to go on with them. The
process holds a lock on ``lock``; the kernel lets go of it when the process ends, however it does.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from maxtool.files.finished import JOURNAL, NEW, found, prune
from maxtool.files.parts import FolderLock, Moves

LOCK, OLD, PARTS = "lock", "old", "parts"
MARK = "maxtool-"
HIDDEN = re.compile(rf"\..*\.{MARK}[0-9a-f]{{8}}", re.DOTALL)
# Of the output's name; with dots, mark and letters it must fit the 143 bytes that eCryptfs has.
NAME_BYTES = 100
BOOT = Path("/proc/sys/kernel/random/boot_id")
ATTEMPTS = 100


@dataclass(slots=True)
class Scratch:
    """A hidden folder of this process for an output's place; there is none before :meth:`begin`."""

    folder: Path
    place: Path
    descriptor: int | None = None  # the open lock
    alone: FolderLock = field(default_factory=FolderLock)  # while parts are moved

    @property
    def staging(self) -> Path:
        """The path at which the output is written."""
        return self.folder / NEW / self.place.name

    @property
    def moves(self) -> Moves:
        """The moves that put an output of several files in place."""
        folder, parts = self.folder, self.folder / PARTS
        return Moves(folder / NEW, folder / OLD, self.place.parent, parts)

    @property
    def aside(self) -> Path:
        """The path to which what is in the way is moved."""
        return self.folder / OLD / self.place.name

    def begin(self) -> None:
        """Make the folder and hold it; under another name where another process takes it away."""
        for _ in range(ATTEMPTS):
            self.folder = _hidden(self.place)
            self.folder.mkdir(mode=0o700)
            with suppress(FileNotFoundError):
                if self._hold():
                    return
        raise BlockingIOError(f"no folder beside {self.place} could be kept")

    def _hold(self) -> bool:
        """Lock the folder and say so; False if another process took it for one that was left."""
        file = self.folder / LOCK
        self.descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        locked = lock(self.descriptor)
        if locked is False or not is_there(file, self.descriptor):
            self.let_go()
            return False
        said = {"name": self.place.name, "locked": locked is True, **here()}
        os.write(self.descriptor, json.dumps(said).encode())
        for part in (NEW, OLD):
            (self.folder / part).mkdir()
        return True

    def end(self, *, keep: bool = True) -> None:
        """Restore files that were set aside in vain, remove the rest, and release the lock.

        Finished parts that a journal lists stay, unless ``keep`` is false. Whatever there is of the
        folder: an interrupt may come before all of it is made.
        """
        self._put_back()
        kept = found(self.folder).parts if keep else {}
        if kept:
            prune(self.folder, kept)
        else:
            self._remove()
        self.let_go()

    def let_go(self) -> None:
        """Release the lock; what is in the folder stays."""
        self.alone.release()
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None

    def _put_back(self) -> None:
        """Move back what was moved aside for an output that did not come into its place."""
        if (self.folder / PARTS).exists():
            self.alone.hold(self.place.parent)
            self.moves.undo()
            (self.folder / PARTS).unlink()
        elif self._is_between():
            self.aside.rename(self.place)

    def _remove(self) -> None:
        """Remove the folder; the lock goes last, as without it nobody would know whose it is."""
        with suppress(FileNotFoundError):
            (self.folder / JOURNAL).unlink()
        for part in (NEW, OLD):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        with suppress(OSError):
            if os.listdir(self.folder) == [LOCK]:  # noqa: PTH208 - names
                (self.folder / LOCK).unlink()
            self.folder.rmdir()

    def _is_between(self) -> bool:
        """Return whether what was in the way is set aside, and the new output not in its place."""
        return (
            os.path.lexists(self.aside)
            and os.path.lexists(self.staging)
            and not os.path.lexists(self.place)
        )


def beside(path: Path) -> Scratch:
    """The hidden folder in which the output for ``path`` can be made, not begun yet."""
    return Scratch(_hidden(path), path)


def _hidden(path: Path) -> Path:
    """A name that nothing has yet."""
    short = path.name.encode(errors="replace")[:NAME_BYTES].decode(errors="ignore")
    return path.parent / f".{short}.{MARK}{os.urandom(4).hex()}"


@cache
def here() -> dict[str, str]:
    """The identity of this machine: its name, and its kernel's name for this boot."""
    try:
        boot = BOOT.read_text().strip()
    except OSError:
        boot = ""
    return {"host": socket.gethostname(), "boot": boot}


def lock(descriptor: int) -> bool | None:
    """Try to take the lock: whether it is ours now; None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_there(path: Path, descriptor: int) -> bool:
    """Return whether a path still names the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
