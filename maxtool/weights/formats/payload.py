"""Writing tensor payloads to their places in a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import MisshapenWeight, MissingWeight, ModelMismatch, UnexpectedWeight
from maxtool.files.write_out import begin_write_out, reserve
from maxtool.parallel import Behind, in_order
from maxtool.weights.tensor_info import TensorSpec

CHUNK_BYTES = 1 << 24
# Handing so little to another thread takes longer than writing it.
AT_ONCE = 1 << 16


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


# Writes bytes to a place in an array, which is counted in bytes; they may change afterwards.
WriteAt: TypeAlias = Callable[[int, memoryview], object]


@dataclass(frozen=True, slots=True)
class Placed:
    """An array whose parts are written side by side, each by the thread that reads it.

    Attributes:
        dtype: NumPy's type of the array.
        shape: Its shape.
        parts: Calls that write a part each, and return its bytes; the parts follow each other.
        threads: How many of them may be made at a time.
        finish: What is called when all of them have been made.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[Callable[[WriteAt], int]]
    threads: int
    finish: Callable[[], None]


Payload = NDArray[Any] | Chunked | Placed


class Digest(Protocol):
    """A hash of bytes that come one after the other, as those of hashlib are."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add bytes behind those that were there."""


# Told the bytes done since the last call.
Progress = Callable[[int], None]


def check_held(
    format_name: str,
    specs: Sequence[TensorSpec],
    unfit: Callable[[TensorSpec], str | None],
    reserved: str | None = None,
) -> None:
    """Refuse tensors that ``unfit`` gives a reason for, names that are there twice or reserved."""
    problems = [f"{spec.name}: {why}" for spec in specs if (why := unfit(spec))]
    names = Counter(spec.name for spec in specs).items()
    problems += [f"{name}: the name is there {count} times" for name, count in names if count > 1]
    problems += [f"{reserved}: no tensor can have this name" for s in specs if s.name == reserved]
    if problems:
        raise ModelMismatch(f"{format_name} cannot hold these tensors", problems=problems)


def write_file(
    path: Path,
    header: tuple[bytes, Sequence[int]],
    specs: Sequence[TensorSpec],
    arrays: Iterable[Payload],
    progress: Progress | None,
    digest: Digest | None,
) -> None:
    """Write a file of tensors, one array or chunk at a time, the next being made meanwhile.

    Args:
        path: Where to write; use :func:`maxtool.files.staged`.
        header: The first bytes, where each payload starts in the file, and where this ends.
        specs: What the arrays must be; ``MisshapenWeight`` if they are not.
        arrays: As many, in the same order; only one is held at a time. ``MissingWeight`` and
            ``UnexpectedWeight`` if there are fewer or more.
        progress: What is told of the bytes written.
        digest: What all bytes of the file are given to, in their order; the payloads are then to be
            given in that order, too.
    """
    beginning, (*offsets, end) = header
    with path.open("wb") as file:
        with Behind() as behind:
            reserve(file.fileno(), end)
            stream = DigestedStream(file, digest, behind)
            stream.write(beginning)
            _write_payloads(stream, specs, offsets, arrays, progress)
            stream.seek(end)
        file.truncate(end)


@dataclass(frozen=True, slots=True)
class DigestedStream:
    """A file that a thread writes from its beginning to its end, and hashes on the way.

    What is passed over by :meth:`seek` becomes zeros.
    """

    file: BinaryIO
    digest: Digest | None
    behind: Behind

    def write(self, data: bytes | memoryview) -> int:
        """Write at the place that was reached; the data must stay as they are."""
        if len(data) > AT_ONCE:
            self.behind.call(lambda: self._write(data))
        else:
            self.behind.finish()
            self._write(data)
        return len(data)

    def place(self, array: Placed, progress: Progress) -> int:
        """Write an array at the place that was reached; returns its bytes."""
        self.behind.finish()
        begin = end = self.file.tell()
        calls = (
            partial(part, partial(_write_at, self.file.fileno(), begin)) for part in array.parts
        )
        with closing(in_order(calls, array.threads)) as counts:  # no thread outlives the file
            for count in counts:
                begin_write_out(self.file.fileno(), end, count)
                end += count
                progress(count)
        self.file.seek(end)
        return end - begin

    def seek(self, offset: int) -> None:
        """Go on from a later place of the file, once all before is written."""
        self.behind.finish()
        if self.digest is not None:
            self.digest.update(bytes(offset - self.file.tell()))
        self.file.seek(offset)

    def _write(self, data: bytes | memoryview) -> None:
        if self.digest is not None:
            self.digest.update(data)
        start = self.file.tell()
        self.file.write(data)
        begin_write_out(self.file.fileno(), start, len(data))


Writable: TypeAlias = DigestedStream | IO[bytes]


def _write_payloads(
    stream: DigestedStream,
    specs: Sequence[TensorSpec],
    offsets: Sequence[int],
    arrays: Iterable[Payload],
    progress: Progress | None,
) -> None:
    for offset, (spec, array) in zip(offsets, paired(specs, arrays), strict=True):
        stream.seek(offset)
        write_payload(stream, spec, array, progress)
        stream.behind.finish()  # so that what it was made of is freed before the next is made


def paired(
    specs: Sequence[TensorSpec], arrays: Iterable[Payload]
) -> Iterator[tuple[TensorSpec, Payload]]:
    """Each tensor with its array; ``MissingWeight`` and ``UnexpectedWeight`` if one is left."""
    iterator = iter(arrays)
    for spec in specs:
        array = next(iterator, None)
        if array is None:
            raise MissingWeight("no array was given for the tensor", tensor=spec.name)
        yield spec, array
    if next(iterator, None) is not None:
        raise UnexpectedWeight(f"more than {len(specs)} arrays were given")


def write_payload(
    stream: Writable, spec: TensorSpec, array: Payload, progress: Progress | None
) -> None:
    """Write one array, which must be what ``spec`` says; ``MisshapenWeight`` if it is not."""
    _check(array, spec)
    told = progress or (lambda _: None)
    if isinstance(array, Placed):
        written = _write_placed(stream, array, told)
    else:
        chunks = array.chunks if isinstance(array, Chunked) else [array]
        written = sum(_write(stream, chunk, told) for chunk in chunks)
    if written != spec.nbytes:
        what = f"{written} bytes were given where the file has {spec.nbytes}"
        raise MisshapenWeight(what, tensor=spec.name)


def _check(array: Payload, spec: TensorSpec) -> None:
    if array.dtype != spec.stored_dtype or array.shape != spec.stored_shape:
        what = f"an array of {array.dtype} {list(array.shape)} was given where the file has"
        what = f"{what} {spec.stored_dtype} {list(spec.stored_shape)}"
        raise MisshapenWeight(what, tensor=spec.name)


def _write_placed(stream: Writable, array: Placed, progress: Progress) -> int:
    """Write the parts of an array, one after the other where each byte must follow the last."""
    written = 0
    if isinstance(stream, DigestedStream) and stream.digest is None:
        written = stream.place(array, progress)
    else:
        for part in array.parts:
            count = part(lambda _, data: stream.write(bytes(data)))
            written += count
            progress(count)
    array.finish()
    return written


def _write(stream: Writable, array: NDArray[Any], progress: Progress) -> int:
    """Write an array; returns its bytes."""
    payload = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, payload.size, CHUNK_BYTES):
        chunk = payload[start : start + CHUNK_BYTES]
        stream.write(chunk.data)
        progress(chunk.size)
    return payload.size


def _write_at(descriptor: int, start: int, offset: int, data: memoryview) -> None:
    """Write all of the data to a file, ``offset`` bytes behind ``start``."""
    while data:
        count = os.pwrite(descriptor, data, start + offset)
        data, offset = data[count:], offset + count
