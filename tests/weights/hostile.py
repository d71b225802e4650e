"""Demands on every reader of broken files: an ``InputError``, soon, and little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from maxtool.errors import InputError, MalformedFile
from maxtool.weights import open_checkpoint

ROOT = Path(__file__).resolve().parents[2]
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
    """Return a file's tensors; None if it is refused. Any other error is a failure."""
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
    """A refusal takes neither long nor much memory, in a process that does nothing else."""
    # Another process may take the caches: the machine is asked up to three times.
    for _ in range(3):
        command = [sys.executable, "-c", MEASURE, str(path)]
        done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True)
        seconds, kilobytes, refused = json.loads(done.stdout)
        assert refused
        assert kilobytes * 1024 < MOST_BYTES
        if seconds < MOST_SECONDS:
            return
    pytest.fail(f"{seconds} s")


# The peak is of everything that the process held, so what it held before is taken off.
MEASURE = """
import json, resource, sys
from pathlib import Path
from maxtool.errors import InputError
from maxtool.weights import open_checkpoint
from tests.machine import Stopwatch
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, refused = peak(), False
with Stopwatch() as watch:
    try:
        checkpoint = open_checkpoint(Path(sys.argv[1]))
        [checkpoint.read(name).data.tobytes() for name in checkpoint.tensors]
    except InputError:
        refused = True
print(json.dumps([watch.seconds, peak() - before, refused]))
"""
