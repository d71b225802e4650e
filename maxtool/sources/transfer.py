"""A file copied from a store in pieces, several at a time; what is there of it is kept."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from maxtool.errors import ChangedFile, MalformedFile
from maxtool.files.outputs import check_space
from maxtool.sources.origin import Listed, Progress
from maxtool.urls import redacted
from maxtool.weights.remote.checksum import Checksum, Running
from maxtool.weights.remote.patience import patiently
from maxtool.weights.remote.store import Piece, Store

# Bytes of a piece, and how many are asked for side by side: together the memory that it takes.
PIECE = 1 << 23
AT_ONCE = 4


def transfer(store: Store, url: str, listed: Listed, part: Path, progress: Progress) -> None:
    """Complete a file of which ``part`` may have the beginning, and check it.

    A part is of one content: its name says which. It does not stay if the whole is not that. Where
    the store knows no ranges, it is read from its beginning.

    Raises:
        ChangedFile: If the file is another one by now.
        MalformedFile: If its size or checksum is not the one that is listed.
        InputError: If it cannot be read, after several attempts.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        if store.has_ranges(url):
            _attempt(store, url, listed, part, progress)
        else:
            patiently(lambda: _attempt(store, url, listed, part, progress), store.stopped)
    except (ChangedFile, MalformedFile):
        with suppress(OSError):
            part.unlink()
        raise


def _attempt(store: Store, url: str, listed: Listed, part: Path, progress: Progress) -> None:
    """Complete the file, asking for each piece as often as it takes."""
    running = listed.checksum and listed.checksum.begun(listed.size)
    with part.open("a+b") as stream:
        if not store.has_ranges(url):
            stream.truncate(0)
        start = _begun(stream, listed.size, running)
        check_space(part, listed.size - start)
        name = unquote(redacted(url).rpartition("/")[2])
        progress.stage(name, listed.size, already=start, steady=True)
        # Closed at once where this fails: its threads would keep the process until they time out.
        with closing(_pieces(store, url, start, listed.size)) as pieces:
            for piece in pieces:
                if piece.total != listed.size:
                    raise _other(url)
                stream.write(piece.data)
                if running is not None:
                    running.update(piece.data)
                progress(len(piece.data))
        stream.flush()
        os.fsync(stream.fileno())
        _check_size(stream, listed.size, url)
    store.check_same(url)
    if running is not None and listed.checksum and running.hexdigest() != listed.checksum.value:
        raise _spoilt(url, running.hexdigest(), listed.checksum)


def _begun(stream: BinaryIO, size: int, running: Running | None) -> int:
    """The bytes that are there, which are hashed; none of a part that is too long."""
    stream.seek(0)
    if os.fstat(stream.fileno()).st_size > size:
        stream.truncate()
    if running is None:
        return stream.seek(0, os.SEEK_END)
    while chunk := stream.read(PIECE):
        running.update(chunk)
    return stream.tell()


def _pieces(store: Store, url: str, start: int, size: int) -> Generator[Piece, None, None]:
    """The pieces of a file in order; when one fails, nobody waits for the others."""
    if not store.has_ranges(url):
        yield from store.stream(url)
        return

    def read(at: int) -> Piece:
        count = min(PIECE, size - at)
        return patiently(lambda: store.read(url, at, count), store.stopped)

    starts = iter(range(start, size, PIECE))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            waiting = deque(pool.submit(read, at) for at in islice(starts, AT_ONCE))
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(read, at) for at in islice(starts, 1))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            store.stop()
            raise


def _check_size(stream: BinaryIO, size: int, url: str) -> None:
    """Check that nothing came between, such as what another process wrote to the same part."""
    found = os.fstat(stream.fileno()).st_size
    if found != size:
        what = f"what was written has {found} bytes, and the file has {size}"
        raise MalformedFile(what, file=redacted(url), hint="nothing of it was kept: run this again")


def _other(url: str) -> ChangedFile:
    hint = "run this again once nobody replaces it"
    return ChangedFile("the file was replaced while it was read", file=redacted(url), hint=hint)


def _spoilt(url: str, found: str, announced: Checksum) -> MalformedFile:
    what = f"what came is not the file that is listed: its {announced.kind} is {found}, and "
    what += f"{announced.value} was announced"
    hint = "nothing of it was kept: run this again; if it comes to the same, "
    hint += "a proxy or mirror on the way changes files, or the file on the server is damaged"
    return MalformedFile(what, file=redacted(url), hint=hint)
