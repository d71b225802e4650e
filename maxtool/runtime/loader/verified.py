"""Large files that were held against their checksums before, remembered by their stamps.

Hashing gigabytes takes longer than loading and running them. So who has hashed a file notes in the
user's cache which bytes it held, and the stamp that it had: while it has that stamp, it is taken
for unchanged. Two things leave the stamp as it is, and only hashing shows them: a write through a
shared mapping to a page that was written to just before, and damage on the disk itself. Nothing
else depends on the cache; what cannot be read there is hashed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

# Smaller files are hashed each time.
LARGE = 1 << 20
# Only a stamp that is older than what hashing began with, by more than clocks of file systems are
# coarse, tells of any later change.
SETTLED_NS = 2_000_000_000
OTHERS_MAY_WRITE = 0o022
NOTE_BYTES = 1 << 10


def is_known(path: Path, digest: str) -> bool:
    """Return whether the file is known to be the one with this SHA-256."""
    status = path.stat()
    return status.st_size >= LARGE and _noted(path) == [digest, *_stamp(status)]


def remember(path: Path, digest: str, before: os.stat_result, began: int) -> None:
    """Note a file that was hashed: its status ``before``, and when that ``began``, in ns."""
    settled = max(before.st_mtime_ns, before.st_ctime_ns) < began - SETTLED_NS
    if before.st_size < LARGE or not settled:
        return
    with suppress(OSError, RuntimeError):
        if _stamp(path.stat()) == _stamp(before):
            _write(_note_of(path), [digest, *_stamp(before)])


def _write(note: Path, content: list[str | int]) -> None:
    """Put a note in its place, whole or not at all, where this user alone may write it."""
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=note.parent) as scratch:
        written = Path(scratch) / note.name
        written.touch(mode=0o600)
        written.write_text(json.dumps(content))
        written.replace(note)


def _stamp(status: os.stat_result) -> list[int]:
    """A mark that a write changes, whoever sets times afterwards: that of status cannot be set."""
    times = [status.st_mtime_ns, status.st_ctime_ns]
    return [status.st_dev, status.st_ino, status.st_size, *times]


def _noted(path: Path) -> object:
    """The note on a file, by this user alone; None if nothing is."""
    try:
        with _note_of(path).open("rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & OTHERS_MAY_WRITE:
                return None
            return json.loads(stream.read(NOTE_BYTES))
    except (OSError, RuntimeError, ValueError, RecursionError):
        return None


def _note_of(path: Path) -> Path:
    """The file that says which bytes a path held."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # what is not, is to be ignored (XDG Base Directory Specification)
        base = Path.home() / ".cache"
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    return base / "maxtool" / "verified" / f"{name}.json"
