"""Libraries of quantizers that were compiled before, below the user's cache.

To load one takes a tenth of the time that it takes to load the compiler. A library is called after
all that decides on its code: this file's neighbours, the releases of the compiler, the CPU. And
after its own content, without which it is not loaded. It may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from maxtool.files import sha256, staged
from maxtool.files.user_cache import user_cache

FOLDER = "quantizers"
# Libraries of some forty kilobytes each, of which the oldest are removed.
MOST = 200
# The folders of maxtool whose code makes these libraries, and the packages.
ROOMS = ("compiler", "quantization", "runtime/loader")
PACKAGES = ("apache-tvm", "apache-tvm-ffi")

CPU = Path("/proc/cpuinfo")
# What Linux says of a CPU that is about its instructions, on x86 and on ARM.
TOLD = re.compile(
    r"^(?:vendor_id|cpu family|model|stepping|flags|CPU \w+|Features)\s*:.*$", re.MULTILINE
)
# The variables of the environment that have a say in the code.
VARIABLES = ("MAXTOOL_HOST_CPU",)


@dataclass(frozen=True, slots=True)
class KeptLibrary:
    """A library, and how many blocks its function quantizes at a time."""

    path: Path
    batch: int


def find(*what: object) -> KeptLibrary | None:
    """Return the library for what it quantizes, whole, if there is one on this machine."""
    with suppress(OSError, RuntimeError):
        if (folder := _folder()) is not None and _is_own(folder):
            libraries = map(_checked, folder.glob(f"{_key(what)}-*-*.so"))
            return next((library for library in libraries if library is not None), None)
    return None


def keep(batch: int, export: Callable[[Path], object], *what: object) -> None:
    """Keep a library, which ``export`` writes, for what it quantizes.

    ``OSError`` or whatever ``export`` raises where that cannot be done.
    """
    folder = _folder()
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_own(folder):
        return
    with tempfile.TemporaryDirectory() as elsewhere:
        library = Path(elsewhere, "library.so")
        export(library)
        content = library.read_bytes()
    name = f"{_key(what)}-{batch}-{hashlib.sha256(content).hexdigest()}.so"
    with staged(folder / name, told=False) as path:
        path.write_bytes(content)
    _remove_oldest(folder)


def _checked(path: Path) -> KeptLibrary | None:
    """The library if it is what its name says, and nobody else may have written it."""
    _, batch, digest = path.stem.split("-")
    if not batch.isdecimal() or not _is_own(path) or sha256(path) != digest:
        return None
    return KeptLibrary(path, int(batch))


def _is_own(path: Path) -> bool:
    """Return whether a file or folder is this user's, and no other may write to it."""
    status = path.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _folder() -> Path | None:
    """The folder of libraries; None where it is not known what the CPU is."""
    return user_cache() / FOLDER if _machine() else None


def _remove_oldest(folder: Path) -> None:
    with suppress(OSError):
        libraries = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime)
        for path in libraries[:-MOST]:
            path.unlink()


def _key(what: tuple[object, ...]) -> str:
    variables = [f"{name}={os.environ.get(name, '')}" for name in VARIABLES]
    text = "\n".join([_code(), *_machine(), *variables, *map(str, what)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def _machine() -> tuple[str, ...]:
    """The CPU as its system describes it; empty where it does not."""
    with suppress(OSError):
        told = sorted(set(TOLD.findall(CPU.read_text(errors="replace"))))
        return (platform.system(), platform.machine(), *told) if told else ()
    return ()


@cache
def _code() -> str:
    """A digest of the code that makes libraries, and of the releases of what it calls."""
    digest = hashlib.sha256()
    for name in PACKAGES:
        digest.update(f"{name} {version(name)}\n".encode())
    for file in _sources():
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    package = Path(__file__).resolve().parents[2]
    for room in ROOMS:
        yield from sorted((package / room).rglob("*.py"))
