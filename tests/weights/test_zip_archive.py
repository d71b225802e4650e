"""Zip directories that no writer makes, and valid ones of every kind."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from maxtool.errors import InputError, MalformedFile
from maxtool.weights import open_checkpoint
from maxtool.weights.formats import zip_archive
from tests.weights.hostile import Case, check_cost, reads, refused

ARRAY = io.BytesIO()
np.save(ARRAY, np.arange(3.0))
CONTENT = ARRAY.getvalue()


def archive(*names: str, method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytearray:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as result:
        for name in names or ("a.npy",):
            result.writestr(zipfile.ZipInfo(name), CONTENT, method)
        result.comment = comment
    return bytearray(stream.getvalue())


def central(offset: int, value: int, size: int = 2, *names: str) -> bytes:
    """An archive with a field of its first directory entry changed."""
    content = archive(*names)
    at = content.index(b"PK\x01\x02") + offset
    content[at : at + size] = value.to_bytes(size, "little")
    return bytes(content)


def local(offset: int, value: int, size: int = 2) -> bytes:
    """An archive with a field of its first entry's own header changed."""
    content = archive()
    content[offset : offset + size] = value.to_bytes(size, "little")
    return bytes(content)


def end(offset: int, value: int, size: int = 2) -> bytes:
    """An archive with a field of its end record changed."""
    content = archive()
    at = content.rindex(b"PK\x05\x06") + offset
    content[at : at + size] = value.to_bytes(size, "little")
    return bytes(content)


def wide(**changes: int) -> bytes:
    """An archive with 64-bit end records, as PyTorch writes them."""
    content = bytes(archive())
    at = content.rindex(b"PK\x05\x06")
    size, start = struct.unpack_from("<II", content, at + 12)
    fields = {"length": 44, "disk": 0, "count": 1, "size": size, "start": start, "at": at}
    fields.update(changes)
    record = struct.pack(
        "<4sQHHIIQQQQ",
        b"PK\x06\x06",
        fields["length"],
        30,
        45,
        fields["disk"],
        0,
        fields["count"],
        fields["count"],
        fields["size"],
        fields["start"],
    )
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, fields["at"], 1)
    return content[:at] + record + locator + content[at:]


def twice() -> bytes:
    """A directory that names an entry twice."""
    content = archive("a.npy", "b.npy")
    return bytes(content.replace(b"b.npy", b"a.npy"))


M, U = MalformedFile, InputError
END = len(archive()) - 22
HOSTILE: dict[str, Case] = {
    "no end": (bytes(archive()[:END]), M, "no end of the zip directory"),
    "magic alone": (b"PK\x03\x04", M, "no end of the zip directory"),
    "end cut short": (bytes(archive()[:-1]), M, "no end of the zip directory"),
    "trailing data": (bytes(archive()) + b"\0", M, "end record is not at the end"),
    "bytes before": (b"PK\x03\x04" + bytes(archive()), M, "is said to be"),
    "second disk": (end(4, 1), M, "in several parts"),
    "directory on a second disk": (end(6, 1), M, "in several parts"),
    "counts differ": (end(8, 2), M, "in several parts"),
    "directory too long": (end(12, 1 << 20, 4), M, "is said to be 1048576 bytes"),
    "directory elsewhere": (end(16, 0, 4), M, "is said to be"),
    "comment longer": (end(20, 9), M, "not at the end"),
    "more entries than bytes": (end(8, 0x0009_0009, 4), M, "9 zip entries; 51 bytes"),
    "fewer entries": (end(8, 0, 4), M, "another length than its entries"),
    "2^63 entries": (wide(count=1 << 63), M, "contradict each other"),
    "64-bit directory elsewhere": (wide(start=1 << 63), M, "contradict each other"),
    "64-bit record elsewhere": (wide(at=5), M, "is not where it should be"),
    "64-bit record too long": (wide(length=1 << 40), M, "end record of 1099511627776 bytes"),
    "64-bit disk": (wide(disk=7), M, "contradict each other"),
    "no signature": (central(0, 0), M, "not an entry of a zip directory"),
    "encrypted": (central(8, 1), U, "encrypted"),
    "bzip2": (central(10, 12), U, "compressed by method 12; only deflate"),
    "stored with two sizes": (central(24, 9, 4), M, "stored zip entry of 152 and 9 bytes"),
    "name beyond the directory": (central(28, 999), M, "not an entry of a zip directory"),
    "extra beyond the directory": (central(30, 999), M, "not an entry of a zip directory"),
    "comment beyond the directory": (central(32, 999), M, "not an entry of a zip directory"),
    "entry on a second disk": (central(34, 3), M, "in several parts"),
    "no 64-bit size": (central(24, 0xFFFF_FFFF, 4), M, "lacks its 64-bit sizes"),
    "offset outside": (central(42, 1 << 30, 4), M, "lies outside the file"),
    "offset into another": (central(42, 4, 4), M, "contradicts the directory"),
    "local signature": (local(0, 0x4B51), M, "contradicts the directory|not recognised"),
    "local method": (local(8, 8), M, "contradicts the directory"),
    "local name length": (local(26, 4), M, "contradicts the directory"),
    "local name": (local(30, 0x62), M, "contradicts the directory"),
    "local extra beyond the end": (local(28, 60_000), M, "bytes are left|are left"),
    "a name twice": (twice(), M, "the entry 'a.npy' is there twice"),
    "name not UTF-8": (
        bytes(archive("aa.npy").replace(b"aa.npy", b"\xff\xfe.npy")),
        M,
        "not UTF-8",
    ),
    "name above": (bytes(archive("../a.npy")), M, r"'\.\./a\.npy' leaves the archive's folder"),
    "name above, later": (bytes(archive("b/../../a.npy")), M, "leaves the archive's folder"),
    "absolute name": (bytes(archive("/etc/a.npy")), M, "leaves the archive's folder"),
    "drive": (bytes(archive("C:a.npy")), M, "leaves the archive's folder"),
    "backslashes": (
        bytes(archive("..xa.npy").replace(b"..xa.npy", b"..\\a.npy")),
        M,
        "leaves the archive's folder",
    ),
    "neither": (bytes(archive("a.txt")), M, "neither PyTorch's nor NumPy's .* accepted: a Hugging"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives(tmp_path: Path, name: str) -> None:
    refused(tmp_path / "x.bin", HOSTILE[name])


def test_entries_over_one_another_are_refused(tmp_path: Path) -> None:
    """The second entry lies in the bytes of the first, as in bombs of overlapping files."""
    inner = bytes(archive("b.npy"))[: 30 + 5 + len(CONTENT)]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as result:
        result.writestr(zipfile.ZipInfo("a.npy"), inner)
        result.writestr(zipfile.ZipInfo("b.npy"), CONTENT)
    content = bytearray(stream.getvalue())
    second = content.rindex(b"PK\x01\x02")
    content[second + 42 : second + 46] = struct.pack("<I", 35)
    case = (bytes(content), MalformedFile, "overlaps the one before")
    assert refused(tmp_path / "x.npz", case).tensor == "b.npy"


def test_the_plain_cases_of_the_table_are_valid(tmp_path: Path) -> None:
    """The hand-built archives are refused for their mutation, not for how they are built."""
    expected = {"a": np.arange(3.0).tobytes()}
    for content in (archive(), archive(method=8), archive(comment=b"a comment"), wide()):
        assert reads(tmp_path / "x.npz", bytes(content)) == expected


def test_64_bit_sizes(tmp_path: Path) -> None:
    """Read entries of unknown size, as zipfile writes them."""
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w") as result,
        result.open("a.npy", "w", force_zip64=True) as stream,
    ):
        stream.write(CONTENT)
    assert open_checkpoint(tmp_path / "x.npz").read("a").data.tolist() == [0, 1, 2]


def test_sizes_in_the_extra_field(tmp_path: Path) -> None:
    content = archive()
    at, size = content.index(b"PK\x01\x02"), len(CONTENT)
    extra = struct.pack("<HHQ", 9, 8, 0) + struct.pack("<HHQQ", 1, 16, size, size)
    content[at + 20 : at + 28] = b"\xff" * 8
    content[at + 30 : at + 32] = struct.pack("<H", len(extra))
    content[at + 51 : at + 51] = extra
    struct.pack_into("<I", content, content.rindex(b"PK\x05\x06") + 12, 51 + len(extra))
    assert reads(tmp_path / "x.npz", bytes(content)) == {"a": np.arange(3.0).tobytes()}


def test_a_directory_of_too_many_entries_is_refused_at_once(tmp_path: Path) -> None:
    count = zip_archive.MAX_ENTRIES + 1
    directory = bytes(46 * count)
    record = struct.pack(
        "<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), 4
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, 4 + len(directory), 1)
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)
    (tmp_path / "x.npz").write_bytes(b"PK\3\4" + directory + record + locator + last)
    with pytest.raises(MalformedFile, match=f"{count} zip entries; .* allow fewer"):
        open_checkpoint(tmp_path / "x.npz")
    check_cost(tmp_path / "x.npz")
