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

    ``w`` is [n, k] of any dtype, a memory map or another strided view included, and the result
    [ceil(n / nr), k, nr], with zeros beyond n. Little memory is used beside ``out``: the source is
    read some megabytes at a time.
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
