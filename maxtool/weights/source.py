"""Files as mapped bytes, and a cursor that never trusts what it reads."""

from __future__ import annotations

import mmap
import stat
import struct
from pathlib import Path
from typing import Any, NoReturn

from maxtool.errors import MalformedFile, MissingFile

Bytes = bytes | mmap.mmap

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def map_file(path: Path) -> Bytes:
    """Map a regular file read-only; pages are read when they are touched.

    Raises:
        MissingFile: If it is not there, not a regular file, or may not be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise MissingFile("not a regular file", file=path)
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise unreadable(path, error) from error


def is_file(path: Path) -> bool:
    """Whether there is a regular file.

    Raises:
        MissingFile: If the system refuses to say, as it does for names that are too long.
    """
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
    """What to do about a file that ends ``missing`` bytes too early, or nobody knows how many."""
    early = "the file is cut off" if missing is None else f"{missing} bytes of it are missing"
    return f"{early}: download or copy it again"


class Cursor:
    """Reads little-endian values one after the other; every length is checked before use.

    Args:
        data: The bytes of the file.
        file: Named in errors.
    """

    def __init__(self, data: Bytes, file: Path) -> None:
        self.data = data
        self.file = file
        self.position = 0
        self.end = len(data)
        # Up to here the bytes are at hand; a cursor over a remote file fetches what is behind.
        self.ready = self.end

    def stay_within(self, start: int, end: int) -> None:
        """Go to ``start`` and read nothing from ``end`` on; the file must have both."""
        self.position, self.end = start, end
        self.ready = min(self.ready, end)

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return self.end - self.position

    def fail(
        self,
        what: str,
        *,
        offset: int | None = None,
        tensor: str | None = None,
        hint: str | None = None,
    ) -> NoReturn:
        """Raise ``MalformedFile`` at ``offset``, or where the cursor stands."""
        where = self.position if offset is None else offset
        raise MalformedFile(what, file=self.file, tensor=tensor, offset=where, hint=hint)

    def require(self, count: int, what: str) -> None:
        """Check that ``count`` more bytes are there, and have them at hand."""
        if count > self.remaining:
            whole = self.end == len(self.data)
            hint = cut_off(count - self.remaining) if whole else None
            self.fail(f"{what} needs {count} bytes and {self.remaining} are left", hint=hint)

    def skip(self, count: int, what: str) -> int:
        """Pass over ``count`` bytes; returns where they start."""
        start = self.position
        if start + count > self.ready:
            self.require(count, what)
        self.position = start + count
        return start

    def take(self, count: int, what: str) -> bytes:
        """Read ``count`` bytes."""
        start = self.skip(count, what)
        return self.data[start : self.position]

    def unpack(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        """Read the values of a layout."""
        return layout.unpack_from(self.data, self.skip(layout.size, what))

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit integer."""
        return int(_U32.unpack_from(self.data, self.skip(4, what))[0])

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit integer."""
        return int(_U64.unpack_from(self.data, self.skip(8, what))[0])

    def count(self, what: str, *, each: int, most: int) -> int:
        """Read the count of items that take at least ``each`` bytes; at most ``most`` of them."""
        start = self.position
        count = self.u64(what)
        if count > most:
            self.fail(f"{what} is {count}; at most {most} are accepted", offset=start)
        if count * each > self.remaining:
            self.fail(f"{what} is {count}, more than {self.remaining} bytes hold", offset=start)
        return count

    def name(self, what: str, *, most: int) -> str:
        """Read a string with its 64-bit length: 1 to ``most`` bytes of UTF-8."""
        start = self.position
        length = self.u64(f"the length of {what}")
        if not 0 < length <= most:
            self.fail(f"{what} has {length} bytes; 1 to {most} are accepted", offset=start)
        raw = self.take(length, what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8", offset=start + 8)
