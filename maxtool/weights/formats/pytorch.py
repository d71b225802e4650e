"""PyTorch: a zip archive of a pickle that describes tensors, and of their storages.

Read: what ``torch.save`` writes since 1.6. The archive holds one folder with ``data.pkl``, one
entry ``data/KEY`` per storage and, in recent versions, ``byteorder``. The pickle is read without
running it (:mod:`maxtool.weights.formats.pickle_reader`); torch is not needed. Containers of
tensors become dotted names, plain values beside them metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from maxtool.errors import InputError
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
    entries = _in_folder(read_entries(file), file)
    _check_byte_order(entries, file)
    pickle = _stored(entries, PICKLE, file)
    raw = file.read(pickle.start, min(pickle.size, pickle_reader.MAX_PICKLE_BYTES))
    cursor = Cursor(raw, file.path, origin=pickle.start, end=pickle.size)
    find = partial(find_storage, lambda name: _stored(entries, name, file))
    flat = _Flattener(file)
    flat.add(pickle_reader.read(cursor, CALLS, find))
    return FileIndex(tuple(flat.tensors), flat.metadata)


def _in_folder(entries: Mapping[str, ZipEntry], file: SourceFile) -> dict[str, ZipEntry]:
    """The entries by their names below the archive's one folder."""
    pickles = [name for name in entries if name.count("/") == 1 and name.endswith(f"/{PICKLE}")]
    if len(pickles) != 1:
        file.fail(
            f"{len(pickles)} entries are a {PICKLE} in a folder; a PyTorch checkpoint has one"
        )
    folder = pickles[0].removesuffix(PICKLE)
    inside = {
        name.removeprefix(folder): entry
        for name, entry in entries.items()
        if name.startswith(folder)
    }
    if "constants.pkl" in inside or any(name.startswith("code/") for name in inside):
        what = "a TorchScript archive, which holds a program; only checkpoints are read"
        hint = "save its state dict with torch.save, or as safetensors"
        raise InputError(what, file=file.path, hint=hint)
    return inside


def _stored(entries: Mapping[str, ZipEntry], name: str, file: SourceFile) -> ZipEntry:
    entry = entries.get(name)
    if entry is None:
        file.fail(f"the archive has no entry {name!r}")
    if entry.deflated:
        what = f"the entry {name!r} is compressed, as PyTorch never does"
        hint = "pack the archive again without compression"
        raise InputError(what, file=file.path, offset=entry.start, hint=hint)
    return entry


def _check_byte_order(entries: Mapping[str, ZipEntry], file: SourceFile) -> None:
    if "byteorder" not in entries:
        return  # before torch 2.1
    entry = _stored(entries, "byteorder", file)
    order = file.read(entry.start, min(entry.size, 16))
    if order == b"big":
        what = "a big-endian checkpoint; only little-endian ones are read"
        raise InputError(what, file=file.path)
    if order != b"little":
        what = f"the byte order is {order.decode(errors='replace')!r}, not 'little'"
        file.fail(what, entry.start)


class _Flattener:
    """Turns containers in one another into dotted names.

    A pickle can put one container in many places, and in itself: depth and count are bounded.
    """

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.names = UniqueNames(file.path)
        self.tensors: list[TensorInfo] = []
        self.metadata: dict[str, object] = {}
        self.left = MAX_VALUES

    def add(self, value: object, prefix: str = "", name: str | None = None, depth: int = 0) -> None:
        """Add everything at and below ``value``, whose whole name is ``prefix`` and ``name``."""
        self.left -= _cost(value)
        if self.left < 0 or depth > MAX_DEPTH:
            what = f"more than {MAX_VALUES} values, or containers nested deeper than {MAX_DEPTH}"
            self.file.fail(what)
        items = _items(value)
        if items is None:
            whole = self.names.add(prefix, self.file.path.stem if name is None else name)
            self._add_leaf(whole, value)
            return
        if name is not None:
            if len(prefix) + len(name) > MAX_NAME_CHARACTERS:
                self.file.fail(f"a name longer than {MAX_NAME_CHARACTERS} characters")
            prefix = f"{prefix}{name}."
        for key, item in items:
            self.add(item, prefix, str(key), depth + 1)

    def _add_leaf(self, name: str, value: object) -> None:
        if isinstance(value, StridedTensor):
            self.tensors.append(value.described(name, self.file.path))
        elif isinstance(value, Storage):
            what = "a bare storage; only tensors are read"
            raise InputError(what, file=self.file.path, tensor=name, offset=value.entry.start)
        elif isinstance(value, bytes):
            self.metadata[name] = value.decode("latin-1")  # the text that protocol 2 makes of them
        else:
            self.metadata[name] = str(value) if isinstance(value, ImportedName) else value


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
