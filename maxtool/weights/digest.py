"""SHA-256 of a checkpoint's files and of each tensor's payload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from maxtool.weights.data import WeightData

CHUNK_BYTES = 1 << 22


def sha256(weight: WeightData, progress: Callable[[int], None] | None = None) -> str:
    """SHA-256, in hexadecimal, of the bytes of a weight as they are stored: little-endian, packed.

    Args:
        weight: The weight; its data may be mapped.
        progress: Told the bytes done since the last call.
    """
    raw = np.ascontiguousarray(weight.data).reshape(-1).view(np.uint8)
    digest = hashlib.sha256()
    for start in range(0, raw.size, CHUNK_BYTES):
        chunk = raw[start : start + CHUNK_BYTES]
        digest.update(chunk.data)
        if progress is not None:
            progress(chunk.size)
    return digest.hexdigest()
