"""``manifest.json``: what is in the folder, every part of it checked."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from . import verified
from .consistency import check_consistent
from .errors import NotVerified
from .manifest_parser import ManifestParser
from .watched_files import check_stamp

CHECKSUM = "manifest_sha256"
ANYWAY = "compile the model again, or run it anyway with --no-verify"
PART_BYTES = 1 << 20

# Called with the number of bytes just read.
CountBytes: TypeAlias = Callable[[int], None]


def checksum(root: Mapping[str, object]) -> str:
    """The SHA-256 of a manifest, in hexadecimal: of what it says, not of how it is laid out."""
    rest = {key: value for key, value in root.items() if key != CHECKSUM}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _digest(path: Path, progress: CountBytes) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(PART_BYTES):
            whole.update(part)
            progress(len(part))
    return whole.hexdigest()


class Manifest(ManifestParser):
    """``manifest.json``, every part of it checked, and the parts against each other."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        check_consistent(self)

    def verify(self, *, again: bool = False) -> None:
        """Check the manifest's own checksum and every recorded SHA-256.

        A large file that was hashed before, and was not written to since, is hashed ``again`` or
        not. ``NotVerified`` names a file that is not the one that was compiled.
        """
        for error in self.differences(again=again):
            raise error

    def differences(
        self, progress: CountBytes = lambda _: None, *, again: bool
    ) -> Iterator[NotVerified]:
        """Yield an error for each file that is not the one that was compiled."""
        if self.root.get(CHECKSUM) != checksum(self.root):
            yield self._changed(self.path, "its checksum is another")
        for path, expected in self.files.items():
            if not again and verified.is_known(path, expected):
                continue
            before, began = path.stat(), time.time_ns()
            if _digest(path, progress) == expected:
                verified.remember(path, expected, before, began)
            else:
                yield self._changed(path, self._difference(path))

    def require_unchanged(self, path: Path) -> None:
        """Refuse a file of the artifact that was changed since the manifest was read."""
        if path in self.stamps:
            check_stamp(path, self.stamps[path])

    def _changed(self, path: Path, why: str) -> NotVerified:
        what = f"{path.name} is not the file that was compiled: {why}"
        return NotVerified(what, file=path, hint=ANYWAY)

    def _difference(self, path: Path) -> str:
        """Describe how a file differs: in its size, or in its content alone."""
        recorded, size = self.sizes[path], path.stat().st_size
        same = "its SHA-256 is another"
        return same if recorded == size else f"it had {recorded} bytes and has {size}"
