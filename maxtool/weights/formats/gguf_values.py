"""The typed values of GGUF metadata, read as and written from Python and NumPy values."""

from __future__ import annotations

import struct
from typing import Any, NoReturn

import numpy as np

from maxtool.weights.cursor import Cursor

STRING, ARRAY, BOOL = 8, 9, 7
# enum gguf_type of gguf.h: the numbers, bool included.
NUMBERS: dict[int, np.dtype[Any]] = {
    code: np.dtype(name)
    for code, name in enumerate(("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"))
} | {10: np.dtype("<u8"), 11: np.dtype("<i8"), 12: np.dtype("<f8")}
CODES = {dtype: code for code, dtype in NUMBERS.items()}

MAX_STRING_BYTES = 1 << 30
MAX_ARRAY_LENGTH = 1 << 30
# Memory that all text of a file may take: a budget, and what a string and a byte of it cost. The
# largest published vocabulary, with its merges, takes 83 MB of it.
MAX_TEXT_MEMORY = 88_000_000
STRING_COST, BYTE_COST = 72, 4

_U64 = struct.Struct("<Q")


def whole_number(value: object, default: int) -> int | None:
    """An integer value as ``int``; ``default`` for an absent one, ``None`` for anything else."""
    if value is None:
        return default
    return int(value) if isinstance(value, np.integer) else None


class ValueReader:
    """Reads metadata values; one per file, since it adds up the cost of all text."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.memory_left = MAX_TEXT_MEMORY

    def read(self, key: str) -> object:
        """A ``str``, ``bool``, NumPy scalar, list of ``str`` or one-dimensional array.

        Text that is not UTF-8 keeps its bytes as lone surrogates.
        """
        start = self.cursor.position
        code = self.cursor.u32(f"the type of {key!r}")
        if code == STRING:
            return self._string(key)
        if code == ARRAY:
            return self._array(key)
        if code not in NUMBERS:
            self.cursor.fail(f"{key!r} has the unknown type {code}", offset=start)
        value = self._numbers(key, code, 1)[0]
        return bool(value) if code == BOOL else value

    def _string(self, key: str) -> str:
        length = self.cursor.count(f"the length of {key!r}", each=1, most=MAX_STRING_BYTES)
        self._spend(1, length, self.cursor.position)
        return self.cursor.take(length, key).decode("utf-8", "surrogateescape")

    def _array(self, key: str) -> object:
        start = self.cursor.position
        code = self.cursor.u32(f"the element type of {key!r}")
        if code == STRING:
            return self._strings(key)
        if code not in NUMBERS:
            what = "an array of arrays" if code == ARRAY else f"of the unknown type {code}"
            self.cursor.fail(f"{key!r} is {what}, which is not accepted", offset=start)
        each = NUMBERS[code].itemsize
        length = self.cursor.count(f"the length of {key!r}", each=each, most=MAX_ARRAY_LENGTH)
        return self._numbers(key, code, length)

    def _numbers(self, key: str, code: int, count: int) -> np.ndarray[Any, np.dtype[Any]]:
        dtype = NUMBERS[code]
        start = self.cursor.position
        raw = np.frombuffer(self.cursor.take(count * dtype.itemsize, f"the value of {key!r}"), "u1")
        if code == BOOL and (raw > 1).any():
            self.cursor.fail(f"{key!r} holds a bool that is neither 0 nor 1", offset=start)
        return raw.view(dtype)

    def _strings(self, key: str) -> list[str]:
        """The hot loop of large vocabularies: nothing but lengths, bounds and decoding."""
        cursor = self.cursor
        start = cursor.position
        count = cursor.count(f"the length of {key!r}", each=8, most=MAX_ARRAY_LENGTH)
        self._spend(count, 0, start)
        data, position, unpack = cursor.data, cursor.position, _U64.unpack_from
        begins = position
        limit = position + 8 * count + self.memory_left // BYTE_COST
        ready = min(cursor.ready, limit)
        passes = f"a string of {key!r} passes the end of the file"
        strings = []
        for _ in range(count):
            begin = position + 8
            if begin > ready:
                ready = self._have(f"{key!r} ends early", position, begin, limit)
            position = begin + unpack(data, position)[0]
            if position > ready:
                ready = self._have(passes, begin, position, limit)
            strings.append(data[begin:position].decode("utf-8", "surrogateescape"))
        self._spend(0, position - begins - 8 * count, start)
        cursor.position = position
        return strings

    def _spend(self, strings: int, nbytes: int, offset: int) -> None:
        """Take the cost of text from the budget."""
        self.memory_left -= strings * STRING_COST + nbytes * BYTE_COST
        if self.memory_left < 0:
            self._too_much(offset)

    def _have(self, otherwise: str, begin: int, end: int, limit: int) -> int:
        """Ensure that bytes are at hand, or raise; returns the end of the usable ones."""
        if end > self.cursor.end:
            self.cursor.fail(otherwise, offset=begin)
        if end > limit:
            self._too_much(begin)
        self.cursor.position = begin
        self.cursor.require(end - begin, otherwise)
        return min(self.cursor.ready, limit)

    def _too_much(self, offset: int) -> NoReturn:
        what = f"text that would take more than the {MAX_TEXT_MEMORY} bytes of memory accepted"
        self.cursor.fail(what, offset=offset)


def pack_string(text: str) -> bytes:
    """A string with its length, as read by :class:`ValueReader`."""
    raw = text.encode("utf-8", "surrogateescape")
    return _U64.pack(len(raw)) + raw


def pack_value(key: str, value: object) -> bytes:
    """The type that a value decides, and the value; ``key`` is named in errors."""
    if isinstance(value, str):
        return _code(STRING) + pack_string(value)
    if isinstance(value, bool | np.generic):
        scalar = np.asarray(value)
        return _code(_number_code(key, scalar)) + scalar.tobytes()
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return _code(ARRAY, _number_code(key, value)) + _U64.pack(len(value)) + value.tobytes()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return _code(ARRAY, STRING) + _U64.pack(len(value)) + b"".join(map(pack_string, value))
    raise TypeError(
        f"{key}: {type(value).__name__} has no GGUF type; use str, bool, a NumPy scalar such as"
        " numpy.uint32, a list of str or a one-dimensional array"
    )


def _number_code(key: str, values: np.ndarray[Any, np.dtype[Any]]) -> int:
    code = CODES.get(values.dtype)
    if code is None:
        raise TypeError(f"{key}: GGUF metadata has no type for NumPy's {values.dtype}")
    return code


def _code(*codes: int) -> bytes:
    return b"".join(code.to_bytes(4, "little") for code in codes)
