"""The file formats: a module with ``read`` for each, and ``check`` and ``write`` for three.

A reader checks all that a header says. ``MalformedFile`` is what contradicts the format,
``InputError`` what is not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from maxtool.errors import MalformedFile
from maxtool.weights.cursor import Cursor, FileCursor
from maxtool.weights.formats import artifact, gguf, npz, onnx, pytorch, safetensors, zip_archive
from maxtool.weights.formats.file_index import FileIndex
from maxtool.weights.source_file import SourceFile, Stamp, changed, open_source, stamp

Format = Literal["safetensors", "gguf", "pytorch", "onnx", "npz", "npy", "artifact"]

# Formats whose header is the beginning of the file, so that it can be read from a distance.
HEADERS: dict[Format, Callable[[Cursor], FileIndex]] = {
    "safetensors": safetensors.read_header,
    "gguf": gguf.read_header,
}
READERS: dict[Format, Callable[[SourceFile], FileIndex]] = {
    "pytorch": pytorch.read,
    "onnx": onnx.read,
    "npz": npz.read_archive,
    "npy": npz.read_array,
    "artifact": artifact.read,
}
# The formats of checkpoints that have a config.json beside them.
HUGGING_FACE: frozenset[Format] = frozenset({"safetensors", "pytorch"})
ACCEPTED = (
    "a Hugging Face folder; a .safetensors, .gguf, .onnx, .npz or .npy file; a PyTorch .bin, .pt or"
    " .pth file; the .index.json file of shards"
)

# What is looked at to tell a format; longer than any beginning below.
FIRST_BYTES = 64

# Formats that are told by their first bytes, or by their name where these are broken.
_MAGIC: dict[bytes, Format] = {gguf.MAGIC: "gguf", npz.MAGIC: "npy"}
_SUFFIXES: dict[str, Format] = {
    ".gguf": "gguf",
    ".safetensors": "safetensors",
    onnx.SUFFIX: "onnx",
    npz.SUFFIX: "npy",
}
# What is recognised only to say what to do with it.
_OTHERS = {
    b"\x80": (
        "a pickle without the zip archive around it, as PyTorch wrote before 1.6; pickles are"
        " never read",
        "load it where you trust it, and save it as safetensors or with a newer torch.save",
    ),
    b"version https://git-lfs": (
        "a Git LFS pointer: the file itself was not downloaded",
        "fetch it with git lfs pull",
    ),
}


def read(path: Path, format_: Format | None = None) -> tuple[Format, FileIndex, dict[Path, Stamp]]:
    """The header of a file, and what tells whether it, or one with its payloads, has changed since.

    Its format is told by its first bytes, or by its name where these are broken.
    """
    with open_source(path) as file:
        format_ = format_ or _identified(file)
        header = HEADERS.get(format_)
        index = header(FileCursor(file)) if header else READERS[format_](file)
    if stamp(path) != file.stamp:
        raise changed(path)
    return format_, index, {path: file.stamp, **index.beside}


def _identified(file: SourceFile) -> Format:
    path, data = file.path, file.read(0, min(file.size, FIRST_BYTES))
    if data[:4] in (zip_archive.MAGIC, zip_archive.EMPTY_MAGIC) and data[8:9] != b"{":
        return _archive(file)
    for magic, format_ in _MAGIC.items():
        if _starts(data, magic):
            return format_
    for start, (what, hint) in _OTHERS.items():
        if _starts(data, start):
            raise MalformedFile(what, file=path, offset=0, hint=f"{hint}; accepted: {ACCEPTED}")
    if path.suffix in _SUFFIXES:
        return _SUFFIXES[path.suffix]
    if data[8:9] == b"{":
        return "safetensors"
    if onnx.is_model(data):
        return "onnx"
    what = "the format was not recognised"
    raise MalformedFile(what, file=path, offset=0, hint=f"accepted: {ACCEPTED}")


def _archive(file: SourceFile) -> Format:
    """Return the format of a zip archive, by the names in it."""
    entries = zip_archive.read_entries(file)
    if pytorch.is_archive(entries):
        return "pytorch"
    if npz.is_archive(entries):
        return "npz"
    what = "a zip archive, and neither PyTorch's nor NumPy's"
    raise MalformedFile(what, file=file.path, offset=0, hint=f"accepted: {ACCEPTED}")


def _starts(data: bytes, start: bytes) -> bool:
    """Return whether ``data`` begins with ``start`` and is no safetensors file by chance."""
    return data[: len(start)] == start and data[8:9] != b"{"
