"""SHA-256 of a checkpoint's files and of each tensor's payload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from maxtool.weights.weight_elements import Weight, items

CHUNK_BYTES = 1 << 22


def sha256(weight: Weight, progress: Callable[[int], None] | None = None) -> str:
    """SHA-256, in hexadecimal, of a weight's bytes as they are stored: little-endian, packed."""
    take, nbytes = items(weight)
    each = take(slice(0, 0)).itemsize
    digest = hashlib.sha256()
    for start in range(0, nbytes // each, CHUNK_BYTES // each):
        chunk = take(slice(start, start + CHUNK_BYTES // each)).view(np.uint8)
        digest.update(chunk.data)
        if progress is not None:
            progress(chunk.size)
    return digest.hexdigest()
