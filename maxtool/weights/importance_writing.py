"""Importance matrices written as llama-imatrix writes them; :mod:`.importance_file` has the forms.

Source: ``save_imatrix`` and ``save_imatrix_legacy`` in llama.cpp's ``tools/imatrix/imatrix.cpp``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.formats import gguf
from maxtool.weights.importance_file import (
    CHUNK_COUNT,
    CHUNK_SIZE,
    COUNTS,
    DATASETS,
    INTEGER,
    MAX_NAME_BYTES,
    SUMS,
)
from maxtool.weights.tensor_info import TensorSpec

ENTRY = struct.Struct("<ii")  # the calls, and the number of values
OLDER = ".dat"  # how names of files in the older form end


@dataclass(frozen=True)
class ColumnSquares:
    """Squares of what a matrix was multiplied with, or each matrix of a stack.

    Attributes:
        sums: Of each column, float64 ``[matrices, columns]``.
        counts: The rows that they are of, int64 ``[matrices]``.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class MeasuredImportance:
    """The importance of the columns of a model's matrices on a text.

    Attributes:
        squares: By GGUF's name of a matrix.
        chunks: Pieces of the text that were read.
        chunk_size: Tokens of each.
        dataset: What the text is called.
    """

    squares: Mapping[str, ColumnSquares]
    chunks: int
    chunk_size: int
    dataset: str


def write_importance(path: Path, measured: MeasuredImportance, *, older: bool) -> None:
    """Write GGUF, or the older form."""
    if older:
        path.write_bytes(_older(measured))
    else:
        _write_gguf(path, measured)


def _write_gguf(path: Path, measured: MeasuredImportance) -> None:
    arrays: dict[str, NDArray[np.float32]] = {}
    for name, squares in sorted(measured.squares.items()):
        stacked = len(squares.counts) > 1
        sums, counts = (squares.sums, squares.counts[:, None]) if stacked else _flat(squares)
        arrays[name + SUMS] = sums.astype(np.float32)
        arrays[name + COUNTS] = counts.astype(np.float32)
    specs = [TensorSpec(name, DType.float32, array.shape) for name, array in arrays.items()]
    metadata = {
        "general.type": "imatrix",
        DATASETS: [measured.dataset],
        CHUNK_COUNT: np.uint32(measured.chunks),
        CHUNK_SIZE: np.uint32(measured.chunk_size),
    }
    gguf.write(path, specs, arrays.values(), metadata)


def _flat(squares: ColumnSquares) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sums and count of one matrix: GGUF drops the dimension of 1."""
    return squares.sums[0], squares.counts


def _older(measured: MeasuredImportance) -> bytes:
    """The bytes of the older form, which has no matrices that were never used."""
    used = {name: each for name, each in measured.squares.items() if each.counts.any()}
    parts = [INTEGER.pack(len(used))]
    for name, squares in sorted(used.items()):
        calls = -(-int(squares.counts.max()) // measured.chunk_size)
        values = (_means(squares) * calls).astype("<f4")
        parts += [_text(name), ENTRY.pack(calls, values.size), values.tobytes()]
    return b"".join([*parts, INTEGER.pack(measured.chunks), _text(measured.dataset)])


def _means(squares: ColumnSquares) -> NDArray[np.float64]:
    """Mean squares; 1 for the matrices of a stack that were never used."""
    counts = squares.counts[:, None]
    return np.where(counts > 0, squares.sums / np.maximum(counts, 1), 1.0)


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")[:MAX_NAME_BYTES]
    return INTEGER.pack(len(raw)) + raw
