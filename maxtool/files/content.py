"""Content of files by its hash, computed again only where a file may have changed.

A digest is kept with the path, size, time of the last change and inode that the file had. That time
is the system's (ctime), which nobody can set: a file may be written to and given the time of
modification that it had, by tools that restore or synchronise files. A file that was written to
just before it was hashed may be written to again within the same tick of the clock: its digest is
not kept.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from maxtool.files.hashing import sha256
from maxtool.files.staging import staged

SETTLED_NS = 2_000_000_000
MISSING = "missing"


class Contents:
    """Hashes of the files below a folder, by their paths as they are named from there.

    Args:
        folder: The folder that paths are relative to.
        kept: The file that digests are kept in.
        again: Whether what was kept is not believed.

    Attributes:
        progress: Told the bytes that are hashed, since the last call.
    """

    progress: Callable[[int], None] | None = None

    def __init__(self, folder: Path, kept: Path, *, again: bool = False) -> None:
        self.folder, self._file = folder, kept
        self._kept = {} if again else _read(kept)
        self._is_new = again

    def digest(self, path: str) -> str:
        """The SHA-256 of a file in hexadecimal; ``MISSING`` if there is no such file."""
        file = self.folder / path
        try:
            status = file.stat()
            stamp = [status.st_size, status.st_ctime_ns, status.st_ino]
            known = self._kept.get(path)
            if known is not None and known[:-1] == stamp:
                return str(known[-1])
            began = time.time_ns()
            digest = sha256(file, self.progress)
        except OSError:
            return MISSING
        if began - status.st_ctime_ns > SETTLED_NS:
            self._kept[path] = [*stamp, digest]
            self._is_new = True
        return digest

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """The digests of files, by path."""
        return {path: self.digest(path) for path in paths}

    def below(self, path: str) -> list[str]:
        """The path itself if it is a file, or those of all files below a folder, sorted."""
        place = self.folder / path
        if not place.is_dir():
            return [path]
        files = (Path(root, name) for root, _, names in os.walk(place) for name in names)
        return sorted(os.path.join(path, file.relative_to(place).as_posix()) for file in files)  # noqa: PTH118 - as it was named

    def names(self, path: str) -> list[str]:
        """The names in a folder that are not hidden, sorted; none of a file."""
        place = self.folder / path
        if not place.is_dir():
            return []
        return sorted(entry.name for entry in place.iterdir() if not entry.name.startswith("."))

    def save(self) -> None:
        """Keep what was hashed, for the next build."""
        if self._is_new:
            with staged(self._file) as path:
                path.write_text(json.dumps(self._kept))


def _read(file: Path) -> dict[str, list[object]]:
    """Return what was kept; nothing where that is not what was written."""
    try:
        content = json.loads(file.read_bytes())
        return {
            str(path): list(entry)
            for path, entry in content.items()
            if len(entry) == 4 and isinstance(entry[-1], str)
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
