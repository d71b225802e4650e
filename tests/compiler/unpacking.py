"""Packed weights as they were, by NumPy alone."""

from __future__ import annotations

import numpy as np


def unpacked(packed: np.ndarray, n: int, k: int | None = None) -> np.ndarray:
    """The [n, k] weight of which [ceil(n / nr), k, nr] was made, or [.., ceil(k / 2), nr, 2]."""
    blocks, steps, nr, *several = packed.shape
    terms = several[0] if several else 1
    wide = packed.reshape(blocks, steps, nr, terms).transpose(0, 2, 1, 3)
    return wide.reshape(blocks * nr, steps * terms)[:n, :k]
