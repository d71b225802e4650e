"""Hidden folders that processes left which were killed, or interrupted: removed, kept, or taken up.

A folder is taken for one that was left if its lock is free, and it was made on this machine: some
network file systems keep locks from other machines.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from maxtool.errors import UsageError
from maxtool.files.finished import JOURNAL, FinishedPart, found
from maxtool.files.journal import Journal
from maxtool.files.scratch import HIDDEN, LOCK, Scratch, here, is_there, lock

MAX_LOCK_BYTES = 1 << 12
# Others hold a folder for less than this, in seconds, to see whether it is to be removed.
ATTEMPTS, PAUSE = 5, 0.05


def clear(folder: Path) -> None:
    """Restore or remove what killed processes left in ``folder``, and nothing of live processes.

    Finished parts that a journal lists stay.
    """
    _end_all(folder, lambda _: True)


def begin(held: Scratch, journal: Journal | None) -> None:
    """Make the hidden folder of an output; with a journal, take up the one that was left.

    ``UsageError`` if that was made of other things, or another process is at work there. Without a
    journal, what was left of the same output is removed.
    """
    folder = held.place.parent
    clear(folder)
    if journal is None:
        _end_all(folder, lambda left: left.place == held.place, keep=False)
        held.begin()
        return
    held.alone.hold(folder)  # of two processes, one takes it up
    if not _took_up(held, journal):
        held.begin()
        journal.start(held.folder)
    held.alone.release()


def kept_parts(place: Path) -> list[FinishedPart]:
    """The finished parts of an output, which a run with a journal would go on with."""
    with suppress(OSError):
        hidden = [path for path in _hidden_in(place.parent) if _place(path) == place]
        return [part for path in hidden for part in found(path).parts.values()]
    return []


def _took_up(held: Scratch, journal: Journal) -> bool:
    """Take up what an earlier run with a journal left of the same output, if it did."""
    for hidden in _hidden_in(held.place.parent):
        if _place(hidden) != held.place or not (hidden / JOURNAL).exists():
            continue
        left = _waited_for(hidden)
        if left is None:
            what = "another process seems to be making this output with --resume"
            hint = "wait until it has ended; if there is none, remove the folder"
            raise UsageError(what, file=hidden, hint=hint)
        held.folder, held.descriptor = left.folder, left.descriptor
        journal.go_on(hidden)
        return True
    return False


def _waited_for(hidden: Path) -> Scratch | None:
    """A hidden folder, held by this process, unless another one holds it longer than to look."""
    for _ in range(ATTEMPTS):
        if left := _taken(hidden):
            return left
        time.sleep(PAUSE)
    return None


def _end_all(folder: Path, which: Callable[[Scratch], bool], *, keep: bool = True) -> None:
    """End what dead processes left, some of it; all journals are dropped unless they are kept."""
    with suppress(OSError):
        for hidden in _hidden_in(folder):
            with suppress(OSError):
                left = _taken(hidden)
                if left is not None and which(left):
                    left.end(keep=keep)
                elif left is not None:
                    left.let_go()


def _hidden_in(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [folder / entry.name for entry in entries if HIDDEN.fullmatch(entry.name)]


def _taken(hidden: Path) -> Scratch | None:
    """A hidden folder, held by this process if it is certain that no other one is at work there."""
    if hidden.is_symlink() or hidden.stat().st_uid != os.geteuid():
        return None
    try:
        descriptor = os.open(hidden / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        hidden.rmdir()  # killed as it began or ended: it is empty
        return None
    left = None
    if lock(descriptor) is True and is_there(hidden / LOCK, descriptor):
        left = _left(hidden, os.read(descriptor, MAX_LOCK_BYTES))
    if left is None:
        os.close(descriptor)
        return None
    return Scratch(hidden, left, descriptor)


def _left(hidden: Path, raw: bytes) -> Path | None:
    """The place of the output that a dead process had begun; None if that is not certain."""
    if not raw and os.listdir(hidden) == [LOCK]:  # noqa: PTH208 - names
        return hidden  # killed before it said anything
    try:
        said = json.loads(raw)
        locked = said["locked"] is True
        known = any(said[key] == value for key, value in here().items() if value)
    except (ValueError, TypeError, KeyError):
        return None
    return _named(hidden, said) if locked and known else None


def _place(hidden: Path) -> Path | None:
    """The place of the output that is made in a hidden folder, as its lock says."""
    try:
        return _named(hidden, json.loads((hidden / LOCK).read_bytes()[:MAX_LOCK_BYTES]))
    except (OSError, ValueError):
        return None


def _named(hidden: Path, said: object) -> Path | None:
    """The place that a lock names, if it is one beside the folder."""
    name = said.get("name") if isinstance(said, dict) else None
    plain = isinstance(name, str) and Path(name).name == name
    return hidden.parent / str(name) if plain else None
