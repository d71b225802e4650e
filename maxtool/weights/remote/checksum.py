"""Checksums by which places tell what their files hold, and functions that compute them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol


class Running(Protocol):
    """A checksum that is being computed."""

    def update(self, data: bytes, /) -> None:
        """Count further bytes."""

    def hexdigest(self) -> str:
        """The checksum of what was counted, in hexadecimal."""
        ...


class Checksum(NamedTuple):
    """A checksum of a file.

    Attributes:
        kind: Its function, a key of ``KINDS``.
        value: Its value in hexadecimal.
    """

    kind: str
    value: str

    def begun(self, size: int) -> Running:
        """The function, to be given all bytes of a file of so many."""
        return KINDS[self.kind](size)

    def fits(self, data: bytes) -> bool:
        """Return whether it is that of some bytes."""
        running = self.begun(len(data))
        running.update(data)
        return running.hexdigest() == self.value


class _Cyclic:
    """A cyclic redundancy check of 32 bits."""

    def __init__(self, extend: Callable[[bytes, int], int]) -> None:
        self._extend, self._value = extend, 0

    def update(self, data: bytes) -> None:
        self._value = self._extend(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class _Castagnoli:
    """CRC-32C by its package."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes) -> None:
        self._value = _castagnoli().extend(self._value, data)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _castagnoli() -> Any:  # noqa: ANN401 - a module without types, or None
    """The package of CRC-32C, which comes with that for Google Cloud Storage; None without it."""
    try:
        import google_crc32c
    except ImportError:
        return None
    return google_crc32c


def _of_git(size: int) -> Running:
    """Git's id of a file: https://git-scm.com/book, chapter 10.2."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def _hash(name: str, _size: int) -> Running:
    return hashlib.new(name, usedforsecurity=False)


GIT = "Git id"
# Each by the bytes of the file; what says most of a file comes first.
KINDS: Mapping[str, Callable[[int], Running]] = {
    **{kind: partial(_hash, kind.replace("-", "").lower()) for kind in ("SHA-512", "SHA-256")},
    GIT: _of_git,
    **{kind: partial(_hash, kind.replace("-", "").lower()) for kind in ("SHA-1", "MD5")},
    "CRC-32C": lambda _: _Castagnoli(),
    "CRC-32": lambda _: _Cyclic(zlib.crc32),
}
# Hexadecimal digits of a value.
DIGITS: Mapping[str, int] = {
    "SHA-512": 128,
    "SHA-256": 64,
    GIT: 40,
    "SHA-1": 40,
    "MD5": 32,
    **dict.fromkeys(("CRC-32C", "CRC-32"), 8),
}


def computable(found: Iterable[Checksum]) -> list[Checksum]:
    """Checksums of the right length whose function is here."""
    return [
        one
        for one in found
        if len(one.value) == DIGITS[one.kind]
        and (one.kind != "CRC-32C" or _castagnoli() is not None)
    ]


def strongest(found: Iterable[Checksum]) -> Checksum | None:
    """The checksum that says most of a file; None if there is none."""
    order = list(KINDS)
    return min(found, key=lambda one: order.index(one.kind), default=None)
