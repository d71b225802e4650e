"""The file formats: for each a module with ``read``, ``check`` and ``write``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from maxtool.errors import MalformedFile
from maxtool.weights.formats import gguf, safetensors
from maxtool.weights.formats.index import FileIndex
from maxtool.weights.source import Bytes, map_file

Format = Literal["safetensors", "gguf"]

READERS: dict[Format, Callable[[Path], FileIndex]] = {
    "safetensors": safetensors.read,
    "gguf": gguf.read,
}
ACCEPTED = (
    "a Hugging Face folder, a .safetensors file, a .safetensors.index.json file or a .gguf file"
)

# Formats that are recognised only to say what to do with them.
_OTHERS = {
    b"PK\x03\x04": "a zip file, perhaps a PyTorch or NumPy checkpoint",
    b"\x80": "a pickle, perhaps an old PyTorch checkpoint; pickles are never read",
    b"\x93NUMPY": "a NumPy array",
    b"version https://git-lfs": "a Git LFS pointer: the file itself was not downloaded",
}


def identify(path: Path) -> Format:
    """Which format a file has, by its first bytes, and by its name where these are broken.

    Raises:
        MissingFile: If it cannot be read.
        MalformedFile: If it is none that is read here.
    """
    data = map_file(path)
    if data[:4] == gguf.MAGIC or path.suffix == ".gguf":
        return "gguf"
    other = next((what for start, what in _OTHERS.items() if _starts(data, start)), None)
    if other is None and (data[8:9] == b"{" or path.suffix == ".safetensors"):
        return "safetensors"
    what = other or "the format was not recognised"
    raise MalformedFile(what, file=path, offset=0, hint=f"accepted: {ACCEPTED}")


def _starts(data: Bytes, start: bytes) -> bool:
    """Whether ``data`` begins with ``start`` and is no safetensors file by chance."""
    return data[: len(start)] == start and data[8:9] != b"{"
