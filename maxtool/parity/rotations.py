"""Positions of tokens: rotary embedding by tables, and learned positions."""

from __future__ import annotations

import numpy as np

from maxtool.parity.array_types import Array, Definitions


def _rows(table: Array, position: Array, count: int) -> Array:
    """``count`` rows of a table from a position on; its first or last one beyond its ends."""
    return table[np.clip(int(position[0]) + np.arange(count), 0, len(table) - 1)]


def _rope(x: Array, cos: Array, sin: Array, position: Array) -> Array:
    """Rotate the first ``2 * cos.shape[1]`` elements of heads ``[batch, seq, heads, dim]``."""
    half = cos.shape[1]
    cos, sin = (_rows(table, position, x.shape[1])[:, None] for table in (cos, sin))
    left, right, rest = np.split(x, [half, 2 * half], axis=-1)
    return np.concatenate([left * cos - right * sin, right * cos + left * sin, rest], -1)


def _rope_angles(
    tokens: Array,
    table: Array,
    position: Array,
    original: int,
    factor: float,
    long_factor: float,
) -> tuple[Array, Array]:
    """Cosines and sines of angles in float32, to which transformers rounds them."""
    count = tokens.shape[1]
    positions = position if count == 1 else position[0] + np.arange(count)
    beyond = position + (count - original)
    factors = np.where(beyond > 0, long_factor, factor)[:, None]
    ends = np.clip(beyond, 0, len(table) - 1)
    angles = positions.astype(np.float32)[:, None] * table[ends].astype(np.float32)
    angles = angles.astype(np.float64)
    return np.cos(angles) * factors, np.sin(angles) * factors


def _add_positions(x: Array, table: Array, position: Array) -> Array:
    return x + _rows(table, position, x.shape[1])


COMPUTED: Definitions = {
    "add_positions": _add_positions,
    "rope": _rope,
    "rope_angles": _rope_angles,
}
