"""PyTorch checkpoints put together opcode by opcode, so that any of it can be wrong."""

from __future__ import annotations

import io
import struct
import zipfile

REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
ORDERED = b"ccollections\nOrderedDict\n)R"
ONE = struct.pack("<2f", 1, 2)


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def numbers(*values: int) -> bytes:
    return grouped(*map(number, values))


def grouped(*items: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(items) + b"t"


def storage(key: str = "0", count: int = 2, kind: bytes = b"ctorch\nFloatStorage\n") -> bytes:
    return grouped(text("storage"), kind, text(key), text("cpu"), number(count)) + b"Q"


def tensor(
    held: bytes | None = None,
    offset: bytes | None = None,
    size: bytes | None = None,
    stride: bytes | None = None,
) -> bytes:
    """A tensor of two floats, unless something else is given."""
    parts = (
        storage() if held is None else held,
        number(0) if offset is None else offset,
        numbers(2) if size is None else size,
        numbers(1) if stride is None else stride,
        b"\x89",
        ORDERED,
    )
    return REBUILD + grouped(*parts) + b"R"


def dictionary(items: dict[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def pickle(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def archive(
    content: bytes,
    storages: dict[str, bytes] | None = None,
    *,
    folder: str = "a",
    method: int = zipfile.ZIP_STORED,
    **others: bytes,
) -> bytes:
    """A checkpoint of a pickle, ``storages``, and other entries by name."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as result:
        result.writestr(f"{folder}/data.pkl", content)
        for name, data in others.items():
            result.writestr(f"{folder}/{name.replace('__', '/')}", data)
        for key, data in ({"0": ONE} if storages is None else storages).items():
            result.writestr(f"{folder}/data/{key}", data)
    return stream.getvalue()


def checkpoint(**values: bytes) -> bytes:
    """A checkpoint with a dictionary of what opcodes make."""
    return archive(pickle(dictionary(values)))
