"""PyTorch: a zip archive of a pickle that describes tensors, and of their storages.

Read: what ``torch.save`` writes since 1.6. The archive holds one folder with ``data.pkl``, one
entry ``data/KEY`` per storage and, in recent versions, ``byteorder``. The pickle is read without
running it (:mod:`maxtool.weights.formats.pickle_reader`); torch is not needed. Containers of
tensors become dotted names, plain values beside them metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from maxtool.errors import InputError, MalformedFile
from maxtool.weights.cursor import Cursor
from maxtool.weights.formats import pickle_reader
from maxtool.weights.formats.file_index import FileIndex
from maxtool.weights.formats.pickle_machine import ImportedName
from maxtool.weights.formats.pytorch_tensors import CALLS, Storage, StridedTensor, find_storage
from maxtool.weights.formats.zip_archive import ZipEntry, read_entries
from maxtool.weights.names import UniqueNames
from maxtool.weights.source_file import SourceFile
from maxtool.weights.tensor_info import TensorInfo

PICKLE = "data.pkl"
# Tensors, plain values and containers; how deep these lie in one another; and their names.
MAX_VALUES = 1 << 17
MAX_DEPTH = 64
MAX_NAME_CHARACTERS = 4096


def is_archive(entries: Iterable[str]) -> bool:
    """Return whether a zip archive with these entries is one of PyTorch."""
    return any(name.endswith(f"/{PICKLE}") for name in entries)


def read(file: SourceFile) -> FileIndex:
    """Read and check the description of a PyTorch checkpoint."""
    path = file.path
    entries = _in_folder(read_entries(file), path)
    _check_byte_order(file, entries)
    pickle = _stored(entries, PICKLE, path)
    raw = file.read(pickle.start, min(pickle.size, pickle_reader.MAX_PICKLE_BYTES))
    cursor = Cursor(raw, path, origin=pickle.start, end=pickle.size)
    find = partial(find_storage, lambda name: _stored(entries, name, path))
    flat = _Flattener(path)
    flat.add(pickle_reader.read(cursor, CALLS, find))
    return FileIndex(tuple(flat.tensors), flat.metadata)


def _in_folder(entries: Mapping[str, ZipEntry], path: Path) -> dict[str, ZipEntry]:
    """The entries by their names below the archive's one folder."""
    pickles = [name for name in entries if name.count("/") == 1 and name.endswith(f"/{PICKLE}")]
    if len(pickles) != 1:
        what = f"{len(pickles)} entries are a {PICKLE} in a folder; a PyTorch checkpoint has one"
        raise MalformedFile(what, file=path)
    folder = pickles[0].removesuffix(PICKLE)
    inside = {
        name.removeprefix(folder): entry
        for name, entry in entries.items()
        if name.startswith(folder)
    }
    if "constants.pkl" in inside or any(name.startswith("code/") for name in inside):
        raise InputError(
            "a TorchScript archive, which holds a program; only checkpoints are read",
            file=path,
            hint="save its state dict with torch.save, or as safetensors",
        )
    return inside


def _stored(entries: Mapping[str, ZipEntry], name: str, path: Path) -> ZipEntry:
    entry = entries.get(name)
    if entry is None:
        raise MalformedFile(f"the archive has no entry {name!r}", file=path)
    if entry.deflated:
        raise InputError(
            f"the entry {name!r} is compressed, as PyTorch never does",
            file=path,
            offset=entry.start,
            hint="pack the archive again without compression",
        )
    return entry


def _check_byte_order(file: SourceFile, entries: Mapping[str, ZipEntry]) -> None:
    if "byteorder" not in entries:
        return  # before torch 2.1
    entry = _stored(entries, "byteorder", file.path)
    order = file.read(entry.start, min(entry.size, 16))
    if order == b"big":
        raise InputError(
            "a big-endian checkpoint; only little-endian ones are read", file=file.path
        )
    if order != b"little":
        what = f"the byte order is {order.decode(errors='replace')!r}, not 'little'"
        raise MalformedFile(what, file=file.path, offset=entry.start)


class _Flattener:
    """Turns containers in one another into dotted names.

    A pickle can put one container in many places, and in itself: depth and count are bounded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = UniqueNames(path)
        self.tensors: list[TensorInfo] = []
        self.metadata: dict[str, object] = {}
        self.left = MAX_VALUES

    def add(self, value: object, prefix: str = "", name: str | None = None, depth: int = 0) -> None:
        """Add everything at and below ``value``, whose whole name is ``prefix`` and ``name``."""
        self.left -= _cost(value)
        if self.left < 0 or depth > MAX_DEPTH:
            what = f"more than {MAX_VALUES} values, or containers nested deeper than {MAX_DEPTH}"
            raise MalformedFile(what, file=self.path)
        items = _items(value)
        if items is None:
            whole = self.names.add(prefix, self.path.stem if name is None else name)
            self._add_leaf(whole, value)
            return
        below = prefix if name is None else f"{self._bounded(prefix, name)}."
        for key, item in items:
            self.add(item, below, str(key), depth + 1)

    def _bounded(self, prefix: str, name: str) -> str:
        if len(prefix) + len(name) > MAX_NAME_CHARACTERS:
            what = f"a name longer than {MAX_NAME_CHARACTERS} characters"
            raise MalformedFile(what, file=self.path)
        return prefix + name

    def _add_leaf(self, name: str, value: object) -> None:
        if isinstance(value, StridedTensor):
            self.tensors.append(value.described(name, self.path))
        elif isinstance(value, Storage):
            what = "a bare storage; only tensors are read"
            raise InputError(what, file=self.path, tensor=name, offset=value.entry.start)
        else:
            self.metadata[name] = _plain(value)


def _cost(value: object) -> int:
    """Return the cost of a value towards ``MAX_VALUES``, wherever it is repeated."""
    items = value if isinstance(value, list | tuple) else ()
    text = sum(len(item) for item in (value, *items) if isinstance(item, str | bytes))
    return 1 + len(items) + text // 64


def _items(value: object) -> Iterable[tuple[str | int, object]] | None:
    """Key and value of a container; None for anything else, lists of plain numbers included."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple) and not all(type(item) in _SCALARS for item in value):
        return enumerate(value)
    return None


_SCALARS = {int, float, bool, str, type(None)}


def _plain(value: object) -> object:
    """A value for the metadata; bytes as the text that protocol 2 makes of them."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value) if isinstance(value, ImportedName) else value
