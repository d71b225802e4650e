"""Files of llama.cpp's importance matrices, in both forms: GGUF, and the older one without a name.

For each matrix of a model they have, for each of its columns, the mean square of what it was
multiplied with; of a stack of matrices one after the other. ``llama-imatrix`` writes them. GGUF has
sums of squares (``NAME.in_sum2``) and how many they are of (``NAME.counts``). The older form is a
sequence of little-endian values: the number of entries; of each the length of its name, the name,
how often it was called, the number of values, and these as float32, times the number of calls; in
the end, if at all, the number of chunks of text, and the length and the name of the text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import MalformedFile
from maxtool.weights.checkpoint import Checkpoint, open_checkpoint
from maxtool.weights.formats.gguf import MAGIC, MAX_TENSORS
from maxtool.weights.source_file import SourceFile, open_source

Float32 = NDArray[np.float32]

SUMS, COUNTS = ".in_sum2", ".counts"
DATASETS = "imatrix.datasets"
CHUNK_COUNT, CHUNK_SIZE = "imatrix.chunk_count", "imatrix.chunk_size"
MAX_NAME_BYTES = 1 << 12
MAX_VALUES = 1 << 28  # of a matrix, or of a stack of them
INTEGER = struct.Struct("<i")


@dataclass(frozen=True)
class ImportanceFile:
    """The importance of the columns of a model's matrices.

    Attributes:
        file: Where it was read.
        columns: By GGUF's name of a matrix; of a stack of matrices those of all of them, one after
            the other. All are finite, and none is negative.
        chunks: Pieces of the text that was computed; 0 if the file does not say.
        dataset: What the text is called; empty if the file does not say.
    """

    file: Path
    columns: Mapping[str, Float32]
    chunks: int = 0
    dataset: str = ""


def read_importance(path: Path) -> ImportanceFile:
    """Read a file of either form.

    Raises:
        MissingFile: If it is not there.
        MalformedFile: If it is not such a file, or one of its numbers is not finite, or negative.
    """
    with open_source(path) as source:
        is_gguf = source.size >= len(MAGIC) and source.read(0, len(MAGIC)) == MAGIC
        found = None if is_gguf else _Reader(source).file()
    found = _from_gguf(open_checkpoint(path)) if found is None else found
    for name, columns in found.columns.items():
        if not (np.isfinite(columns).all() and (columns >= 0).all()):
            raise MalformedFile("importance is negative or not finite", file=path, tensor=name)
    return found


def _from_gguf(checkpoint: Checkpoint) -> ImportanceFile:
    names = [name.removesuffix(SUMS) for name in checkpoint.tensors if name.endswith(SUMS)]
    if not names:
        what = f"the file has no importance: no tensor is called NAME{SUMS}"
        raise MalformedFile(what, file=checkpoint.path)
    return ImportanceFile(
        checkpoint.path,
        {name: _means(checkpoint, name) for name in names},
        _whole(checkpoint.metadata.get(CHUNK_COUNT)),
        _text(checkpoint.metadata.get(DATASETS)),
    )


def _means(checkpoint: Checkpoint, name: str) -> Float32:
    """Sums of squares divided by their counts, of which each matrix of a stack has one."""
    sums, counts = (_floats(checkpoint, name + last) for last in (SUMS, COUNTS))
    if not counts.size or sums.size % counts.size:
        what = f"{sums.size} sums and {counts.size} counts do not fit each other"
        raise MalformedFile(what, file=checkpoint.path, tensor=name)
    with np.errstate(all="ignore"):  # what is not finite is found in the end
        whole = np.floor(counts.astype(np.float64) + 0.5).astype(np.float32)[:, None]
        matrices = sums.reshape(counts.size, -1)
        means = np.where(whole > 0, matrices / whole, np.float32(1))
    return np.where(np.isnan(whole), np.float32(np.nan), means).reshape(-1)


def _floats(checkpoint: Checkpoint, name: str) -> Float32:
    info = checkpoint.tensors.get(name)
    if info is None or info.type_name != "F32":
        what = "every importance needs float32 tensors of sums and of counts"
        raise MalformedFile(what, file=checkpoint.path, tensor=name)
    return np.asarray(checkpoint.read(name).data, np.float32).reshape(-1)


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | np.integer) and value > 0 else 0


def _text(value: object) -> str:
    """The first of a list of texts."""
    first = value[0] if isinstance(value, list) and value else ""
    return first if isinstance(first, str) else ""


class _Reader:
    """A reader of the older form, which checks every number before it is used."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.position = 0

    def file(self) -> ImportanceFile:
        """Read all of it."""
        count = self._integer("the number of entries", 1, MAX_TENSORS)
        columns: dict[str, Float32] = {}
        for index in range(count):
            name = self._name(f"the name of entry {index}")
            if name in columns:
                self._fail(f"two entries are called {name!r}")
            columns[name] = self._columns(name)
        chunks, dataset = self._ending()
        return ImportanceFile(self.source.path, columns, chunks, dataset)

    def _columns(self, name: str) -> Float32:
        calls = self._integer(f"the calls of {name!r}", -1 << 31, (1 << 31) - 1)
        count = self._integer(f"the number of values of {name!r}", 1, MAX_VALUES)
        values = np.frombuffer(self._take(4 * count, f"the values of {name!r}"), "<f4")
        with np.errstate(all="ignore"):  # what is not finite is found in the end
            return np.asarray(values / np.float32(max(calls, 1)), np.float32)

    def _ending(self) -> tuple[int, str]:
        """The number of chunks and the name of the text, which older files lack."""
        if self.position == self.source.size:
            return 0, ""
        chunks = self._integer("the number of chunks", -1 << 31, (1 << 31) - 1)
        if self.position == self.source.size:
            return max(0, chunks), ""
        length = self._integer("the length of the text's name", 0, MAX_NAME_BYTES)
        dataset = self._take(length, "the text's name").decode(errors="replace")
        if self.position != self.source.size:
            self._fail("the file goes on behind its end")
        return max(0, chunks), dataset

    def _name(self, what: str) -> str:
        length = self._integer(f"the length of {what}", 1, MAX_NAME_BYTES)
        try:
            return self._take(length, what).decode()
        except UnicodeDecodeError:
            self._fail(f"{what} is not UTF-8")

    def _integer(self, what: str, least: int, most: int) -> int:
        (value,) = INTEGER.unpack(self._take(INTEGER.size, what))
        if not least <= value <= most:
            self._fail(f"{what} is {value}; {least} to {most} are accepted", back=INTEGER.size)
        return int(value)

    def _take(self, count: int, what: str) -> bytes:
        left = self.source.size - self.position
        if count > left:
            self._fail(f"{what} needs {count} bytes and {left} are left")
        self.position += count
        return self.source.read(self.position - count, count)

    def _fail(self, what: str, *, back: int = 0) -> NoReturn:
        hint = "an importance matrix is what llama-imatrix writes"
        self.source.fail(what, self.position - back, hint=hint)
