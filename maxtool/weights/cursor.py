"""Reading a file from its beginning on, with a cursor that never trusts what it reads."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NoReturn

from maxtool.errors import MalformedFile
from maxtool.weights.source_file import SourceFile, cut_off

# Of the beginning of a file that is read in order: 100 MB and the length before them.
MAX_HEADER_BYTES = 100_000_008
# What is read of it at first, and then at a time.
FIRST_BYTES, MOST_BYTES = 1 << 16, 1 << 22

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """Reads little-endian values one after the other; every length is checked before use.

    Args:
        data: The bytes, or the first of them.
        file: Named in errors.
        origin: Where ``data`` starts in the file.
        end: How many bytes there are in all.
    """

    def __init__(
        self, data: bytes | bytearray, file: Path, *, origin: int = 0, end: int | None = None
    ) -> None:
        self.data = data
        self.file = file
        self.origin = origin
        self.position = 0
        self.end = len(data) if end is None else end
        # Up to here the bytes are at hand; more is fetched when it is asked for.
        self.ready = len(data)

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
        """Raise ``MalformedFile`` at ``offset`` of the data, or where the cursor stands."""
        where = self.origin + (self.position if offset is None else offset)
        raise MalformedFile(what, file=self.file, tensor=tensor, offset=where, hint=hint)

    def require(self, count: int, what: str) -> None:
        """Check that ``count`` more bytes are there, and have them at hand."""
        self._check(count, what)
        if self.position + count > self.ready:
            self._fetch(self.position + count)

    def _check(self, count: int, what: str) -> None:
        if count > self.remaining:
            hint = None if self.origin else cut_off(count - self.remaining)
            self.fail(f"{what} needs {count} bytes and {self.remaining} are left", hint=hint)

    def _fetch(self, needed: int) -> None:
        """Fetch all bytes up to ``needed``, which are in the file."""
        raise NotImplementedError

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
        return bytes(memoryview(self.data)[start : self.position])

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


class FileCursor(Cursor):
    """Reads a file from its beginning on, and no more of it than it comes to."""

    data: bytearray

    def __init__(self, source: SourceFile) -> None:
        super().__init__(bytearray(), source.path, end=source.size)
        self._source = source

    def take(self, count: int, what: str) -> bytes:
        """Read ``count`` bytes; very many are not kept at hand too."""
        start = self.position
        if count <= MOST_BYTES or start + count <= self.ready:
            return super().take(count, what)
        self._check(count, what)
        self._check_size(start + count)
        self.position += count
        return self._source.read(start, count)

    def _check_size(self, needed: int) -> None:
        if needed > MAX_HEADER_BYTES:
            self.fail(f"a header of more than {MAX_HEADER_BYTES} bytes")

    def _fetch(self, needed: int) -> None:
        self._check_size(needed)
        while self.ready < needed:
            ahead = min(max(self.ready, FIRST_BYTES), MOST_BYTES, self.end - self.ready)
            self.data += self._source.read(self.ready, ahead)
            self.ready += ahead
