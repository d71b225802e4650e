"""Blocks of any codes, and activations as kernels of quantized weights take them, in NumPy."""

from __future__ import annotations

import numpy as np

from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.codec import CODECS

# Products of the same integers: float32 sums of some dozens of terms.
SAME_INTEGERS = 1e-6


def blocks_of(seed: int, encoding: QuantizationEncoding, n: int, k: int) -> np.ndarray:
    """Any codes, and scales of a sensible size."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (n, encoding.row_bytes(k)), dtype=np.uint8)
    records = rows.view(CODECS[encoding].layout)
    for name in sorted({"d", "m", "dmin"} & set(records.dtype.names or ())):
        records[name] = rng.uniform(1e-3, 1e-2, records[name].shape)
    if encoding is QuantizationEncoding.MXFP4:
        records["e"] = rng.integers(118, 124, records["e"].shape)
    return rows


def half_steps(x: np.ndarray, span: int) -> np.ndarray:
    """Half the distance between the numbers that each activation may become."""
    top = np.abs(x.reshape(len(x), -1, span)).max(axis=-1).astype("f8")
    return np.repeat(top / 254, span, axis=-1)


def rounded(x: np.ndarray, span: int) -> np.ndarray:
    """Activations as the kernels take them: 127 steps for the largest of each span."""
    parts = x.reshape(len(x), x.shape[1] // span, span)
    top = np.maximum(np.abs(parts).max(axis=-1, keepdims=True), np.float32(2.0**-100))
    steps = np.rint(parts * (np.float32(127) / top)).astype("f8")
    return (steps * (top / np.float32(127)).astype("f8")).reshape(x.shape)


def away_from_ties(x: np.ndarray, span: int) -> np.ndarray:
    """Activations without those that a fused product rounds to another neighbour: zeros instead."""
    parts = x.reshape(len(x), -1, span).astype("f8")
    steps = parts * 127 / np.abs(parts).max(axis=-1, keepdims=True)
    near = np.abs(steps - np.floor(steps) - 0.5) < 1e-4
    return np.where(near.reshape(x.shape), np.float32(0), x)
