"""Writing tensor payloads to their places in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import MisshapenWeight, MissingWeight, UnexpectedWeight
from maxtool.weights.tensor_info import TensorSpec

CHUNK_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Chunked:
    """An array of which only a chunk is there at a time.

    Attributes:
        dtype: NumPy's type of all chunks.
        shape: Their shape, one after the other.
        chunks: They, of any shapes.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: Iterable[NDArray[Any]]


Payload = NDArray[Any] | Chunked


def repeated_names(specs: Iterable[TensorSpec]) -> list[str]:
    """A line for every name that more than one spec has."""
    counts = Counter(spec.name for spec in specs)
    return [
        f"{name}: the name is there {count} times" for name, count in counts.items() if count > 1
    ]


def write_payloads(
    stream: BinaryIO,
    specs: Sequence[TensorSpec],
    offsets: Sequence[int],
    arrays: Iterable[Payload],
    progress: Callable[[int], None] | None,
) -> None:
    """Write each array at its offset.

    Args:
        stream: A seekable file.
        specs: What the arrays must be.
        offsets: Where they go, from the start of the file.
        arrays: As many as there are specs; only one is held at a time.
        progress: Told the bytes written since the last call.

    Raises:
        MisshapenWeight: If an array has another dtype or shape than its spec.
        MissingWeight: If there are fewer arrays than specs.
        UnexpectedWeight: If there are more.
    """
    iterator = iter(arrays)
    for spec, offset in zip(specs, offsets, strict=True):
        array = next(iterator, None)
        if array is None:
            raise MissingWeight("no array was given for the tensor", tensor=spec.name)
        _check(array, spec)
        stream.seek(offset)
        chunks = array.chunks if isinstance(array, Chunked) else [array]
        written = sum(_write(stream, chunk, progress) for chunk in chunks)
        if written != spec.nbytes:
            what = f"{written} bytes were given where the file has {spec.nbytes}"
            raise MisshapenWeight(what, tensor=spec.name)
    if next(iterator, None) is not None:
        raise UnexpectedWeight(f"more than {len(specs)} arrays were given")


def _check(array: Payload, spec: TensorSpec) -> None:
    if array.dtype != spec.stored_dtype or array.shape != spec.stored_shape:
        raise MisshapenWeight(
            f"an array of {array.dtype} {list(array.shape)} was given where the file has"
            f" {spec.stored_dtype} {list(spec.stored_shape)}",
            tensor=spec.name,
        )


def _write(stream: BinaryIO, array: NDArray[Any], progress: Callable[[int], None] | None) -> int:
    """Write an array; returns its bytes."""
    payload = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, payload.size, CHUNK_BYTES):
        chunk = payload[start : start + CHUNK_BYTES]
        stream.write(chunk.data)
        if progress is not None:
            progress(chunk.size)
    return payload.size
