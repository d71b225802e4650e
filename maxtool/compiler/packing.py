"""Weights of a linear layer, laid out so that a kernel reads them one vector after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool.runtime.loader.memory import aligned

Array = np.ndarray[Any, Any]

# Bytes of the source that are transposed at a time.
CHUNK = 8 << 20


def packed_shape(n: int, k: int, nr: int, terms: int = 1) -> tuple[int, ...]:
    """The shape of a packed [n, k] weight: column blocks, k, columns of a block.

    Several ``terms`` of a column that lie side by side are one more dimension, the last.
    """
    shape = (-(-n // nr), -(-k // terms), nr)
    return shape if terms == 1 else (*shape, terms)


def pack_linear(w: Array, nr: int, terms: int = 1, *, out: Array | None = None) -> Array:
    """Pack a weight into blocks of ``nr`` output features, k running outside them.

    ``w`` is [n, k] of any dtype, a memory map or another strided view included, and the result
    [ceil(n / nr), k, nr], or [ceil(n / nr), ceil(k / terms), nr, terms], with zeros beyond n and k.
    Little memory is used beside ``out``: the source is read some megabytes at a time.
    """
    if w.ndim != 2:
        raise ValueError(f"a weight to pack has two dimensions, not {w.ndim}")
    n, k = w.shape
    shape = packed_shape(n, k, nr, terms)
    if out is None:
        out = aligned(shape, w.dtype, np.empty)
    if out.shape != shape or out.dtype != w.dtype:
        raise ValueError(f"out is {out.dtype}{out.shape}, the packed weight {w.dtype}{shape}")
    whole = n // nr
    step = max(1, CHUNK // max(1, nr * k * w.dtype.itemsize))
    laid = _grouped(out.reshape(*shape[:2], nr * terms), terms)
    for start in range(0, whole, step):
        stop = min(start + step, whole)
        rows = _grouped(w[start * nr : stop * nr], terms)
        laid[start:stop] = rows.reshape(stop - start, nr, -1).transpose(0, 2, 1)
    if rest := n % nr:
        laid[whole, :, :rest] = _grouped(w[whole * nr :], terms).T
        laid[whole, :, rest:] = 0
    return out


def _grouped(rows: Array, terms: int) -> Array:
    """Rows of which each element is ``terms`` neighbours, the last filled up with zeros."""
    if terms == 1:
        return rows
    *outer, k = rows.shape
    if missing := -k % terms:
        filled = np.zeros((*outer, k + missing), rows.dtype)
        filled[..., :k] = rows
        rows = filled
    return np.ascontiguousarray(rows).view(f"u{terms * rows.itemsize}")
