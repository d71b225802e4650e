"""Files read by their offsets, and what tells that one has changed.

Nothing is mapped but what a caller asks to view: a mapped file that another process cuts ends this
process by a signal. What is read instead is checked, and a file that changes is an error.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import ChangedFile, InputError, MalformedFile, MissingFile
from maxtool.weights.files_read import note_read
from maxtool.weights.header_copies import check_payload


class Stamp(NamedTuple):
    """Stamp that tells a file from one put in its place, and from itself once it is written to."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of a file with this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def stamp(path: Path) -> Stamp:
    """The stamp of the file at ``path``; ``MissingFile`` if it is not there."""
    try:
        return Stamp.of(path.stat())
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise unreadable(path, error) from error


class SourceFile:
    """An open file; see :func:`open_source`. ``ChangedFile`` is raised if it has changed since."""

    def __init__(self, path: Path, descriptor: int, expected: Stamp | None) -> None:
        self.path = path
        self._descriptor = descriptor
        self.stamp = expected or Stamp.of(os.fstat(descriptor))
        self.size = self.stamp.size

    def read(self, start: int, count: int) -> bytes:
        """The bytes from ``start`` on, which must be inside the file; fewer than 2**31 of them."""
        try:
            content = os.pread(self._descriptor, count, start)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if len(content) < count:
            raise changed(self.path)
        return content

    def fail(
        self,
        what: str,
        offset: int | None = None,
        tensor: str | None = None,
        hint: str | None = None,
    ) -> NoReturn:
        """Raise ``MalformedFile``."""
        raise MalformedFile(what, file=self.path, tensor=tensor, offset=offset, hint=hint)

    def fill(self, start: int, out: memoryview) -> None:
        """Read the bytes from ``start`` on into a buffer of any size."""
        check_payload(self.path)
        while len(out):
            try:
                count = os.preadv(self._descriptor, [out], start)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if not count:
                raise changed(self.path)
            start, out = start + count, out[count:]

    def array(self, start: int, count: int) -> NDArray[np.uint8]:
        """The bytes from ``start`` on as an array of any size."""
        result = np.empty(count, np.uint8)
        self.fill(start, result.data)
        return result

    def check(self) -> None:
        """Check that the file has not changed: what was read may be of neither version."""
        if Stamp.of(os.fstat(self._descriptor)) != self.stamp:
            raise changed(self.path)


@contextmanager
def open_source(path: Path, expected: Stamp | None = None) -> Iterator[SourceFile]:
    """Open a regular file to read it; whether it changes meanwhile is checked in the end.

    ``expected`` is what it was when something was read of it before. ``MissingFile`` if it is not
    there, not a regular file, or may not be read.
    """
    descriptor = _open(path)
    try:
        file = SourceFile(path, descriptor, expected)
        file.check()
        try:
            yield file
        except InputError:  # which it may only be because the file changed
            file.check()
            raise
        file.check()
    finally:
        os.close(descriptor)


def read_file(path: Path, most: int, file_kind: str) -> bytes:
    """All of a file that has at most ``most`` bytes; ``MalformedFile`` speaks of ``file_kind``."""
    with open_source(path) as file:
        if file.size > most:
            what = f"{file.size} bytes of {file_kind}; at most {most} are accepted"
            raise MalformedFile(what, file=path)
        return file.read(0, file.size)


def map_file(path: Path, expected: Stamp) -> bytes | mmap.mmap:
    """Map a regular file read-only; pages are read when they are touched.

    If another process cuts the file later, touching what is gone ends this one by SIGBUS.
    """
    check_payload(path)
    descriptor = _open(path)
    try:
        SourceFile(path, descriptor, expected).check()
        size = expected.size
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
    except (OSError, ValueError) as error:  # ValueError: it has fewer bytes by now
        raise unreadable(path, error) from error
    finally:
        os.close(descriptor)


def changed(path: Path) -> ChangedFile:
    """The error for a file that another process changes."""
    hint = "run this again once nothing writes to the file"
    return ChangedFile("the file was changed while it was read", file=path, hint=hint)


def _open(path: Path) -> int:
    """Open a regular file, without waiting for what is none, such as a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            note_read(path)
            return descriptor
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise unreadable(path, error) from error
    os.close(descriptor)
    raise MissingFile("not a regular file", file=path)


def whole_file(path: Path) -> bytes:
    """All of a file, which is carried over as it stands."""
    with open_source(path) as file:
        return file.array(0, file.size).tobytes()


def is_file(path: Path) -> bool:
    """Return whether there is a regular file; ``MissingFile`` if the system refuses to say."""
    try:
        return path.is_file()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception, *, hint: str | None = None) -> MissingFile:
    """The error for a file that the system would not open; ``hint`` if it is not there."""
    if isinstance(error, FileNotFoundError):
        return MissingFile("no such file or folder", file=path, hint=hint)
    reason = getattr(error, "strerror", None) or str(error)
    return MissingFile(f"cannot be read: {reason}", file=path)


def cut_off(missing: int | None = None) -> str:
    """Advice on a file that ends ``missing`` bytes too early, or by an unknown number if None."""
    early = "the file is cut off" if missing is None else f"{missing} bytes of it are missing"
    return f"{early}: download or copy it again"
