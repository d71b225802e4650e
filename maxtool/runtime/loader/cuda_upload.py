"""Weights read from their file into the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import FileIO

from .cuda_runtime import TO_DEVICE, Cuda, Event, Pinned
from .errors import BadInput
from .manifest import Manifest
from .processor import Progress

PIECE = 16 << 20  # bytes


def upload(cuda: Cuda, manifest: Manifest, addresses: Sequence[int], progress: Progress) -> None:
    """Copy the weights to these addresses of a GPU, which is the current one.

    They go through two buffers: one is filled while the other is sent.
    """
    total = sum(spec.nbytes() for spec in manifest.weights)
    size = min(PIECE, total) or 1
    slots = [(Pinned(cuda, size), Event(cuda)) for _ in range(2)]
    done = 0
    with manifest.weights_file.open("rb", buffering=0) as file:
        for number, (address, offset, length) in enumerate(_pieces(manifest, addresses)):
            buffer, sent = slots[number % 2]
            sent.wait()
            _fill(file, offset, buffer.view[:length])
            cuda.copy(address, buffer.address, length, TO_DEVICE)
            sent.record()
            done += length
            progress(done / total)
    cuda.wait()
    manifest.require_unchanged(manifest.weights_file)


def _pieces(manifest: Manifest, addresses: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each piece's device address, offset in the file, and length."""
    for spec, address in zip(manifest.weights, addresses, strict=True):
        for start in range(0, spec.nbytes(), PIECE):
            yield address + start, spec.offset + start, min(PIECE, spec.nbytes() - start)


def _fill(file: FileIO, offset: int, buffer: memoryview) -> None:
    """Read a whole buffer."""
    file.seek(offset)
    filled = 0
    while filled < len(buffer):
        count = file.readinto(buffer[filled:])
        if not count:
            what = "the file became shorter while it was read"
            raise BadInput(what, file=str(file.name), offset=offset + filled)
        filled += count
