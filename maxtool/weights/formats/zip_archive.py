"""The directory of a zip archive, as PyTorch and NumPy write them, without unpacking anything.

Layout: .ZIP File Format Specification (APPNOTE) 6.3, with its 64-bit records. What archives of
weights have no use for is refused: encryption, several disks, bytes before the first entry, entries
over one another, names that leave the folder, and entries that inflate out of proportion.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from maxtool.errors import InputError
from maxtool.weights.cursor import Cursor
from maxtool.weights.names import stays_inside
from maxtool.weights.source_file import SourceFile, cut_off

MAGIC = b"PK\x03\x04"
EMPTY_MAGIC = b"PK\x05\x06"
STORED, DEFLATED = 0, 8
ENCRYPTED = 0x2041  # the bits for encryption, strong encryption and a masked directory

MAX_ENTRIES = 1 << 16
MAX_COMMENT = (1 << 16) - 1
MAX_DIRECTORY_BYTES = 1 << 25
# An entry may inflate to this many bytes, and beyond them to so many times its bytes in the file.
MAX_FREELY_INFLATED = 1 << 26
MAX_INFLATION = 100
CHUNK_BYTES = 1 << 18

_END = struct.Struct("<4sHHHHIIH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_UNKNOWN_16, _UNKNOWN_32 = (1 << 16) - 1, (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """One entry of an archive.

    Attributes:
        name: Its path in the archive; a relative one without ``..``.
        start: Where its bytes start in the file.
        stored: How many bytes it takes there.
        size: How many bytes it has once inflated.
        deflated: Whether it is compressed.
        crc: CRC-32 of the inflated bytes.
    """

    name: str
    start: int
    stored: int
    size: int
    deflated: bool
    crc: int


def read_entries(file: SourceFile) -> dict[str, ZipEntry]:
    """Read and check the directory of an archive.

    ``InputError`` is an entry that is encrypted, compressed in an unknown way, or a bomb.
    """
    cursor, count = _find_directory(file)
    entries: dict[str, ZipEntry] = {}
    spans = []
    for _ in range(count):
        at = cursor.position
        header_at, entry = _read_entry(cursor, file)
        if entry.name in entries:
            cursor.fail(f"the entry {entry.name!r} is there twice", offset=at)
        entries[entry.name] = entry
        spans.append((header_at, entry.start + entry.stored, entry.name))
    if cursor.remaining:
        cursor.fail("the zip directory has another length than its entries")
    _check_apart(spans, file)
    return entries


def read_entry(file: SourceFile, entry: ZipEntry) -> bytearray:
    """The bytes of an entry, inflated if need be, their checksum compared."""
    content = bytearray(entry.size)
    produced = 0
    for piece in _pieces(file, entry):
        content[produced : produced + len(piece)] = piece
        produced += len(piece)
    if produced != entry.size:
        what = f"the entry inflates to {produced} bytes or more and not to {entry.size}"
        file.fail(what, entry.start, entry.name)
    if zlib.crc32(content) != entry.crc:
        file.fail("the entry's checksum differs from the recorded one", entry.start, entry.name)
    return content


def read_beginning(file: SourceFile, entry: ZipEntry, most: int) -> bytes:
    """The first bytes of an entry, at most ``most`` of them."""
    content = b""
    for piece in _pieces(file, entry, most):
        content += piece
        if len(content) >= most:
            break
    return content[:most]


def _pieces(file: SourceFile, entry: ZipEntry, piece_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of an entry piece by piece, never more than one piece beyond its size."""
    step = min(CHUNK_BYTES, piece_bytes)
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    end, produced = entry.start + entry.stored, 0
    for start in range(entry.start, end, step):
        chunk = file.read(start, min(step, end - start))
        while chunk and produced <= entry.size and not inflater.eof:
            try:
                piece = inflater.decompress(chunk, piece_bytes) if entry.deflated else chunk
            except zlib.error as error:
                file.fail(f"the compressed bytes are broken: {error}", start, entry.name)
            chunk = inflater.unconsumed_tail
            produced += len(piece)
            yield piece


def _find_directory(file: SourceFile) -> tuple[Cursor, int]:
    """A cursor over the directory, and how many entries this has."""
    at, fields = _read_end(file)
    stop = at
    wide_at = at - _LOCATOR.size
    if wide_at >= 0 and file.read(wide_at, 4) == b"PK\x06\x07":
        stop, wide = _read_wide_end(file, wide_at)
        _check_agree(fields, wide, file, at)
        fields = wide
    disk, first_disk, on_disk, count, size, start = fields
    if disk or first_disk or on_disk != count:
        file.fail("a zip archive in several parts", at)
    if start + size != stop:
        what = f"the zip directory is said to be {size} bytes at {start}, and it ends at {stop}"
        file.fail(what, at)
    if count > MAX_ENTRIES or count * _CENTRAL.size > size or size > MAX_DIRECTORY_BYTES:
        what = f"{count} zip entries; {size} bytes and the limits of {MAX_ENTRIES} entries and"
        file.fail(f"{what} {MAX_DIRECTORY_BYTES} bytes allow fewer", at)
    return Cursor(file.read(start, size), file.path, origin=start), count


def _unpack(file: SourceFile, layout: struct.Struct, at: int) -> tuple[Any, ...]:
    """The fields of a record that is inside the file."""
    return layout.unpack(file.read(at, layout.size))


def _read_end(file: SourceFile) -> tuple[int, tuple[int, ...]]:
    """The end record: where it is, and its two disks, two counts, size and start."""
    first = max(0, file.size - _END.size - MAX_COMMENT)
    at = first + file.read(first, file.size - first).rfind(EMPTY_MAGIC)
    if at < first or at + _END.size > file.size:
        what = "no end of the zip directory: the file is cut short, or no archive"
        file.fail(what, file.size, hint=cut_off())
    _, *fields, comment = _unpack(file, _END, at)
    if at + _END.size + comment != file.size:
        file.fail("the zip's end record is not at the end of the file", at)
    return at, tuple(fields)


def _read_wide_end(file: SourceFile, at: int) -> tuple[int, tuple[int, ...]]:
    """The 64-bit end record: where it is, and the same fields."""
    _, disk, wide_at, _ = _unpack(file, _LOCATOR, at)
    if disk or wide_at + _END64.size != at or file.read(wide_at, 4) != b"PK\x06\x06":
        file.fail("the 64-bit end record of the zip is not where it should be", at)
    _, length, _, _, *fields = _unpack(file, _END64, wide_at)
    if length != _END64.size - 12:
        file.fail(f"a 64-bit end record of {length} bytes", wide_at)
    return wide_at, tuple(fields)


def _check_agree(small: tuple[int, ...], wide: tuple[int, ...], file: SourceFile, at: int) -> None:
    limits = (_UNKNOWN_16,) * 4 + (_UNKNOWN_32,) * 2
    for narrow, value, unknown in zip(small, wide, limits, strict=True):
        if narrow not in (value, unknown):
            file.fail("the zip's two end records contradict each other", at)


def _read_entry(cursor: Cursor, file: SourceFile) -> tuple[int, ZipEntry]:
    """One entry of the directory, and where its local header is."""
    at = cursor.position
    if _CENTRAL.size > cursor.remaining:
        cursor.fail("the zip directory ends early")
    fields = cursor.unpack(_CENTRAL, "an entry")
    signature, _, _, flags, method, _, _, crc, stored, size, *rest = fields
    name_bytes, extra_bytes, comment_bytes, disk, _, _, header_at = rest
    if signature != b"PK\x01\x02" or name_bytes + extra_bytes + comment_bytes > cursor.remaining:
        cursor.fail("not an entry of a zip directory", offset=at)
    raw = cursor.take(name_bytes, "the name of a zip entry")
    extra = cursor.take(extra_bytes, "the extra field of a zip entry")
    cursor.skip(comment_bytes, "the comment of a zip entry")
    name = _name(raw, cursor, at)
    if disk:
        cursor.fail("a zip archive in several parts", offset=at)
    size, stored, header_at = _widened(extra, [size, stored, header_at], cursor, at)
    entry = ZipEntry(name, 0, stored, size, method == DEFLATED, crc)
    _check_kind(entry, flags, method, cursor, at)
    start = _payload_start(cursor, file, header_at, raw, method)
    if start + stored > cursor.origin:
        what = f"the entry needs {stored} bytes and {cursor.origin - start} are left"
        file.fail(what, start, name)
    return header_at, replace(entry, start=start)


def _name(raw: bytes, cursor: Cursor, offset: int) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        cursor.fail("the name of a zip entry is not UTF-8", offset=offset)
    if not stays_inside(name):
        cursor.fail(f"the zip entry {name!r} leaves the archive's folder", offset=offset)
    return name


def _widened(extra: bytes, values: list[int], cursor: Cursor, offset: int) -> list[int]:
    """Sizes and offset, those that do not fit 32 bits from the 64-bit extra field."""
    wide = b""
    position = 0
    while position + 4 <= len(extra):
        record_id, length = struct.unpack_from("<HH", extra, position)
        if record_id == 1:
            wide = extra[position + 4 : position + 4 + length]
        position += 4 + length
    for index, value in enumerate(values):
        if value == _UNKNOWN_32:
            if len(wide) < 8:
                cursor.fail("a zip entry lacks its 64-bit sizes", offset=offset)
            values[index], wide = int.from_bytes(wide[:8], "little"), wide[8:]
    return values


def _check_kind(entry: ZipEntry, flags: int, method: int, cursor: Cursor, offset: int) -> None:
    def refuse(what: str) -> NoReturn:
        where = cursor.origin + offset
        raise InputError(what, file=cursor.file, tensor=entry.name, offset=where)

    if flags & ENCRYPTED:
        refuse("the zip entry is encrypted")
    if method not in (STORED, DEFLATED):
        refuse(f"the zip entry is compressed by method {method}; only deflate is read")
    if method == STORED and entry.stored != entry.size:
        what = f"a stored zip entry of {entry.stored} and {entry.size} bytes"
        cursor.fail(what, offset=offset, tensor=entry.name)
    if entry.size > max(MAX_FREELY_INFLATED, entry.stored * MAX_INFLATION):
        refuse(
            f"a zip bomb: {entry.stored} bytes would inflate to {entry.size}, more than"
            f" {MAX_INFLATION} times as many"
        )


def _payload_start(
    cursor: Cursor, file: SourceFile, header_at: int, raw_name: bytes, method: int
) -> int:
    """The start of an entry's bytes, by its local header, which must name the same entry.

    The directory, where ``cursor`` stands, begins behind all entries.
    """
    if header_at + _LOCAL.size > cursor.origin:
        cursor.fail("a zip entry lies outside the file")
    raw = file.read(header_at, min(_LOCAL.size + len(raw_name), cursor.origin - header_at))
    signature, _, _, local_method, *_, name_bytes, extra_bytes = _LOCAL.unpack_from(raw)
    same = (name_bytes, raw[_LOCAL.size :]) == (len(raw_name), raw_name)
    if signature != MAGIC or not same or local_method != method:
        file.fail("a zip entry's own header contradicts the directory", header_at)
    return int(header_at + _LOCAL.size + name_bytes + extra_bytes)


def _check_apart(spans: list[tuple[int, int, str]], file: SourceFile) -> None:
    """Check that no entry lies over another, as in archives that claim the same bytes twice."""
    end = 0
    for start, stop, name in sorted(spans):
        if start < end:
            file.fail("the zip entry overlaps the one before it", start, name)
        end = stop
