"""Weights of a linear layer, laid out so that a kernel reads them one vector after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool.runtime.loader.memory import aligned

Array = np.ndarray[Any, Any]

# Bytes of the source that are transposed at a time.
CHUNK = 8 << 20


def packed_shape(n: int, k: int, nr: int) -> tuple[int, int, int]:
    """The shape of a packed [n, k] weight: column blocks, k, columns of a block."""
    return (-(-n // nr), k, nr)


def pack_linear(w: Array, nr: int, *, out: Array | None = None) -> Array:
    """Pack a weight into blocks of ``nr`` output features, k running outside them.

    Args:
        w: [n, k] of any dtype, a memory map or another strided view included.
        nr: Output features of a block, from the target's tile.
        out: Where to write, of ``packed_shape``; by default a new array. Beyond it, little
            memory is used: the source is read some megabytes at a time.

    Returns:
        [ceil(n / nr), k, nr] of the same dtype; what is beyond n is zero.

    Raises:
        ValueError: If ``w`` is not a matrix, or ``out`` does not fit it.
    """
    if w.ndim != 2:
        raise ValueError(f"a weight to pack has two dimensions, not {w.ndim}")
    n, k = w.shape
    shape = packed_shape(n, k, nr)
    if out is None:
        out = aligned(shape, w.dtype, np.empty)
    if out.shape != shape or out.dtype != w.dtype:
        raise ValueError(f"out is {out.dtype}{out.shape}, the packed weight {w.dtype}{shape}")
    whole = n // nr
    step = max(1, CHUNK // max(1, nr * k * w.dtype.itemsize))
    for start in range(0, whole, step):
        stop = min(start + step, whole)
        blocks = w[start * nr : stop * nr].reshape(stop - start, nr, k)
        out[start:stop] = blocks.transpose(0, 2, 1)
    if rest := n % nr:
        out[whole, :, :rest] = w[whole * nr :].T
        out[whole, :, rest:] = 0
    return out
