"""Packed weights as they were, by NumPy alone."""

from __future__ import annotations

import numpy as np


def unpacked(packed: np.ndarray, n: int) -> np.ndarray:
    """The [n, k] weight of which [ceil(n / nr), k, nr] was made."""
    blocks, k, nr = packed.shape
    return packed.transpose(0, 2, 1).reshape(blocks * nr, k)[:n]
