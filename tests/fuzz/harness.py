"""Common parts of the fuzz targets: a folder to write in, limits for each input, and atheris.

A target turns bytes into the files of a format and reads them. It may end in an error of ours and
in nothing else, within a second of processor time and 100 MB of memory. The ordinary tests run the
targets too, on few mutations and without atheris.
"""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from instrument import ROOT  # isort: skip - before maxtool

from mutations import mutate

from maxtool.errors import MaxtoolError
from maxtool.runtime.loader import RunError
from maxtool.weights import open_checkpoint
from maxtool.weights.digest import sha256
from maxtool.weights.summary import summarize

OURS = (MaxtoolError, RunError)
MOST_SECONDS = 1
MOST_BYTES = 100_000_000
# Names the folder to write in.
SCRATCH = "MAXTOOL_FUZZ_FOLDER"
# Between the files that one input holds.
NEXT = b"\n<next file>\n"


class LimitPassedError(Exception):
    """An input took too long or too much memory."""


class EscapedError(Exception):
    """A file outside the folder became part of a checkpoint."""


@dataclass(frozen=True)
class Target:
    """A target of the fuzzer.

    Attributes:
        seeds: Makes inputs that read without any error.
        read: Writes an input as files and reads them.
        words: What the fuzzer may put into inputs.
    """

    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], None]
    words: Sequence[bytes] = ()


@cache
def _scratch() -> Path:
    if SCRATCH in os.environ:
        return Path(os.environ[SCRATCH])
    result = Path(tempfile.mkdtemp(prefix="maxtool-fuzz-"))
    atexit.register(shutil.rmtree, result, ignore_errors=True)
    return result


@cache
def folder() -> Path:
    """Return the folder of inputs; a link in it leads to a file outside."""
    result = _scratch() / "folder"
    result.mkdir()
    (result.parent / "outside").write_bytes(bytes(64))
    (result / "link").symlink_to("../outside")
    return result


def put(names: Sequence[str], data: bytes) -> Path:
    """Write the parts of an input under these names, and remove the names without a part."""
    parts = data.split(NEXT, len(names) - 1)
    for number, name in enumerate(names):
        path = folder() / name
        path.unlink(missing_ok=True)
        if number < len(parts):
            path.write_bytes(parts[number])
    return folder() / names[0]


def read_checkpoint(path: Path) -> None:
    """Open, list, and read every tensor."""
    checkpoint = open_checkpoint(path)
    inside = path.parent.resolve()
    if outside := [file for file in checkpoint.files if inside not in file.resolve().parents]:
        raise EscapedError(f"{outside} became part of {path}")
    summarize(checkpoint)
    for name in checkpoint.tensors:
        sha256(checkpoint.read(name))


def guard(target: Target, data: bytes) -> bool:
    """Read an input within the limits; whether it was read, and not refused."""
    memory, started = _peak(), time.process_time()
    try:
        target.read(data)
        accepted = True
    except OURS:
        accepted = False
    seconds, grown = time.process_time() - started, _peak() - memory
    if seconds > MOST_SECONDS or grown > MOST_BYTES:
        raise LimitPassedError(f"{seconds:.1f} seconds and {grown / 1e6:.0f} MB more memory")
    return accepted


def _peak() -> int:
    """The most memory that the process had so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def run(target: Target) -> None:
    """Fuzz in a process of its own, which ends without cleaning up behind itself."""
    if SCRATCH in os.environ:
        _fuzz(target)
    memory = Path("/dev/shm")  # noqa: S108 - only the parent of a folder of our own
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        command = [sys.executable, *sys.argv]
        done = subprocess.run(command, env={**os.environ, SCRATCH: scratch}, check=False)
    sys.exit(done.returncode)


def _fuzz(target: Target) -> None:
    """Fuzz from the seeds on, or read the files that the command line names."""
    import atheris

    seeds, words = _scratch() / "seeds", _scratch() / "words"
    seeds.mkdir()
    for number, seed in enumerate(target.seeds()):
        target.read(seed)
        (seeds / str(number)).write_bytes(seed)
    words.write_text("".join(map(_quoted, [NEXT, *target.words])))
    result = ROOT / "build" / "fuzz" / Path(sys.argv[0]).stem
    result.parent.mkdir(parents=True, exist_ok=True)
    options = ["-timeout=30", "-rss_limit_mb=2048", "-max_len=16384", f"-dict={words}"]
    options += [f"-artifact_prefix={result}-", *sys.argv[1:]]
    if not any(Path(option).is_file() for option in sys.argv[1:]):
        options.append(str(seeds))
    command = [sys.argv[0], *options]
    atheris.Setup(command, lambda data: guard(target, data), custom_mutator=_mutated)
    atheris.Fuzz()


def _mutated(data: bytes, most: int, seed: int) -> bytes:
    """Half of the mutations keep the structure; libFuzzer makes the others."""
    import atheris

    random = Random(seed)
    if random.random() < 0.5:
        changed = mutate(data, NEXT, random)
        if len(changed) <= most:
            return changed
    return bytes(atheris.Mutate(data, most))


def _quoted(word: bytes) -> str:
    """A line of libFuzzer's dictionaries."""
    escaped = "".join(f"\\x{byte:02x}" for byte in word)
    return f'"{escaped}"\n'
