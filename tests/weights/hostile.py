"""What every reader is held to on broken files: an ``InputError``, soon, and little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

from maxtool.errors import InputError, MalformedFile
from maxtool.weights import open_checkpoint

MOST_SECONDS = 1
MOST_BYTES = 100_000_000

# Bytes of the file, the class of the error, and what it says.
Case = tuple[bytes, type[InputError], str]


def read_all(path: Path) -> dict[str, bytes]:
    """Every tensor's bytes."""
    checkpoint = open_checkpoint(path)
    return {name: checkpoint.read(name).data.tobytes() for name in checkpoint.tensors}


def put(path: Path, content: bytes) -> None:
    """Write a file that may be there: emptying one takes longer than removing it."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def refused(path: Path, case: Case) -> InputError:
    """The error that a case ends in, which must be of exactly its class and name the file."""
    content, kind, message = case
    put(path, content)
    with pytest.raises(kind, match=message) as caught:
        read_all(path)
    assert type(caught.value) is kind
    assert caught.value.exit_code == 3
    assert str(path.parent) in (caught.value.file or "")
    return caught.value


def reads(path: Path, content: bytes) -> dict[str, bytes] | None:
    """What a file holds; None if it is refused. Any other error is a failure."""
    put(path, content)
    try:
        return read_all(path)
    except InputError:
        return None


def check_truncations(path: Path, content: bytes) -> None:
    """Every file that is cut short is malformed."""
    for length in range(len(content)):
        put(path, content[:length])
        with pytest.raises(MalformedFile):
            read_all(path)


def flips(
    content: bytes, positions: Iterable[int], bits: Iterable[int] = range(8)
) -> Iterable[bytes]:
    """The content with one bit changed, each of ``bits`` of every byte at ``positions``."""
    for position in positions:
        for bit in bits:
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            yield bytes(flipped)


def check_cost(path: Path) -> None:
    """A refusal takes neither long nor much memory."""
    # Another process may take the caches: the machine is asked up to three times.
    assert any(_seconds(path) < MOST_SECONDS for _ in range(3))
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read_all(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def _seconds(path: Path) -> float:
    started = time.process_time()
    with pytest.raises(InputError):
        read_all(path)
    return time.process_time() - started
