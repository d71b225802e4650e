"""Checksums of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

HASH_CHUNK = 1 << 20


def sha256(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The file's SHA-256 in hexadecimal; ``progress`` is told the bytes of each read."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(HASH_CHUNK):
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
    return digest.hexdigest()
