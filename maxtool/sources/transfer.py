"""A file copied from a store in pieces, several at a time; what is there of it is kept."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from maxtool.errors import ChangedFile, MalformedFile
from maxtool.files.outputs import check_space
from maxtool.sources.origin import Listed, Progress
from maxtool.sources.patience import patiently
from maxtool.weights.remote.store import Piece, Store
from maxtool.weights.remote.url import redacted

if TYPE_CHECKING:
    from hashlib import _Hash

# Bytes of a piece, and how many are asked for side by side: together the memory that it takes.
PIECE = 1 << 23
AT_ONCE = 4


def transfer(store: Store, url: str, listed: Listed, part: Path, progress: Progress) -> None:
    """Complete a file of which ``part`` may have the beginning, and check it.

    A part is of one content: its name says which. It does not stay if the whole is not that.

    Raises:
        ChangedFile: If the file is another one by now.
        MalformedFile: If its checksum is not the one that is listed.
        InputError: If it cannot be read, after several attempts.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    hasher = listed.hasher()
    with part.open("a+b") as stream:
        start = _begun(stream, listed.size, hasher)
        check_space(part, listed.size - start)
        name = redacted(url).rpartition("/")[2]
        progress.stage(name, listed.size, already=start, steady=True)
        # Closed at once where this fails: its threads would keep the process until they time out.
        with closing(_pieces(store, url, start, listed.size)) as pieces:
            for piece in pieces:
                if piece.total != listed.size or piece.version != (listed.version or piece.version):
                    raise _other(url, part)
                stream.write(piece.data)
                hasher.update(piece.data)
                progress(len(piece.data))
        stream.flush()
        os.fsync(stream.fileno())
    if listed.digest not in (None, hasher.hexdigest()):
        part.unlink()
        raise _spoilt(url, hasher, listed)


def _begun(stream: BinaryIO, size: int, hasher: _Hash) -> int:
    """The bytes that are there, which are hashed; none of a part that is too long."""
    stream.seek(0)
    if os.fstat(stream.fileno()).st_size > size:
        stream.truncate()
    while chunk := stream.read(PIECE):
        hasher.update(chunk)
    return stream.tell()


def _pieces(store: Store, url: str, start: int, size: int) -> Generator[Piece, None, None]:
    """The pieces of a file in order; when one fails, nobody waits for the others."""

    def read(at: int) -> Piece:
        count = min(PIECE, size - at)
        return patiently(lambda: store.read(url, at, count), store.stopped)

    starts = iter(range(start, size, PIECE))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = deque(pool.submit(read, at) for at in islice(starts, AT_ONCE))
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(read, at) for at in islice(starts, 1))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            store.stop()
            raise


def _other(url: str, part: Path) -> ChangedFile:
    with suppress(OSError):
        part.unlink()
    hint = "run this again once nobody replaces it"
    return ChangedFile("the file was replaced while it was read", file=redacted(url), hint=hint)


def _spoilt(url: str, hasher: _Hash, listed: Listed) -> MalformedFile:
    kind = "SHA-256" if listed.sha256 else "Git id"
    what = f"what came is not the file that is listed: its {kind} is {hasher.hexdigest()}, and "
    what += f"{listed.digest} was announced"
    hint = "nothing of it was kept: run this again; if it comes to the same, "
    hint += "a proxy or mirror on the way changes files, or the file on the server is damaged"
    return MalformedFile(what, file=redacted(url), hint=hint)
