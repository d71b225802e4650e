"""Uploads of files: in blocks, of which an object is made once all have come, and compared then."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

from maxtool.errors import TransferFailed
from maxtool.object_storage import bucket
from maxtool.urls import redacted
from maxtool.weights.remote.announced import OF_PARTS, OWN_KEYS, PLAIN, announced
from maxtool.weights.remote.checksum import Checksum
from maxtool.weights.remote.filesystem import FilesystemStore
from maxtool.weights.remote.patience import patiently
from maxtool.weights.remote.store import Described

Progress = Callable[[int], None]

# Of a block, which is held in memory twice. S3 takes 10,000 of them, Azure 50,000; Google wants a
# multiple of 256 KiB.
BLOCK, MOST_BLOCKS = 1 << 25, 9_000
PIECE = 1 << 23


def upload(path: Path, url: str, progress: Progress | None = None, *, again: bool = False) -> str:
    """Upload a file; the object appears when all of it has come. Returns the object's version.

    Its size, and the checksum that the store tells, are compared with the file. Where a store fails
    for a while, it is begun again.

    Args:
        path: The file.
        url: The object.
        progress: What is told the bytes that were sent since the last call.
        again: Whether the object is read back and compared whatever the store tells.

    Raises:
        UsageError: If there is no such bucket.
        AccessRefused: If it may not be written to.
        TransferFailed: If it does not arrive, or something else does, after several attempts.
    """
    return patiently(lambda: _attempt(path, url, progress, again=again), Event())


def _attempt(path: Path, url: str, progress: Progress | None, *, again: bool) -> str:
    size = path.stat().st_size
    block = block_size(size)
    _send(path, url, block, progress)
    told = FilesystemStore().describe(url)
    if told.size != size:
        what = f"{size} bytes were sent, and the store has {told.size}"
        raise TransferFailed(what, file=redacted(url))
    if (again or not _is_known_same(told, path, block)) and not _reads_back(path, url, size):
        bucket.remove(url)
        what = "what the store has is not what was sent"
        raise TransferFailed(what, file=redacted(url), hint="run this again")
    return str(told.version)


def block_size(size: int) -> int:
    """The bytes of a block of a file of so many."""
    return BLOCK * max(1, -(-size // (BLOCK * MOST_BLOCKS)))


def _send(path: Path, url: str, block: int, progress: Progress | None) -> None:
    """Send a file in blocks; what came of it is dropped, and no longer counted, if that fails."""
    sent = 0

    def advance(nbytes: int) -> None:
        nonlocal sent
        sent += nbytes
        if progress is not None:
            progress(nbytes)

    try:
        with bucket.writable(url) as (system, target):
            _write_blocks(path, system.open(target, "wb", block_size=block), block, advance)
    except BaseException:
        advance(-sent)
        raise


def _write_blocks(path: Path, object_file: Any, block: int, progress: Progress) -> None:  # noqa: ANN401 - of fsspec
    try:
        with path.open("rb") as stream:
            while data := stream.read(block):
                object_file.write(data)
                progress(len(data))
        object_file.close()
    except BaseException:
        _discard(object_file)
        raise


def _discard(object_file: Any) -> None:  # noqa: ANN401 - of fsspec
    """Drop what was sent of an object, which closing would make an object of."""
    with suppress(Exception):
        object_file.discard()
    object_file.closed = True


def _is_known_same(told: Described, path: Path, block: int) -> bool:
    """Return whether the checksum that the store tells, if it does, is that of the file."""
    whole = announced(told.headers, b"", told.size)
    if whole is not None:
        return _of_file(whole, path) == whole.value
    match = OF_PARTS.fullmatch(told.headers.get("etag", ""))
    is_encrypted = told.headers.get("x-amz-server-side-encryption") not in PLAIN
    if match is None or is_encrypted or told.headers.keys() & {*OWN_KEYS}:
        return True  # nothing is told beside the size
    return (match[1], int(match[2])) == _of_parts(path, block)


def _of_file(asked: Checksum, path: Path) -> str:
    running = asked.begun(path.stat().st_size)
    with path.open("rb") as stream:
        while data := stream.read(PIECE):
            running.update(data)
    return running.hexdigest()


def _of_parts(path: Path, block: int) -> tuple[str, int]:
    """The MD5 of the MD5s of a file's blocks, and their number."""
    digests = []
    with path.open("rb") as stream:
        while data := stream.read(block):
            digests.append(hashlib.md5(data, usedforsecurity=False).digest())
    whole = hashlib.md5(b"".join(digests), usedforsecurity=False)
    return whole.hexdigest(), len(digests)


def _reads_back(path: Path, url: str, size: int) -> bool:
    """Read an object back, and return whether it is the file."""
    store = FilesystemStore()
    store.describe(url)
    with path.open("rb") as stream:
        for start in range(0, size, PIECE):
            if store.read(url, start, PIECE).data != stream.read(PIECE):
                return False
    return True
