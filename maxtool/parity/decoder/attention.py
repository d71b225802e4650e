"""Causal attention with grouped queries (arXiv:2305.13245) and sliding windows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def attend(
    q: Array, k: Array, v: Array, *, scale: float, window: int | None, cap: float | None
) -> Array:
    """What each query gathers from the values of the keys up to its own.

    Args:
        q: [batch, heads, seq, head_dim]; head ``h`` uses key head ``h * kv_heads // heads``.
        k: [batch, kv_heads, seq, head_dim].
        v: As ``k``.
        scale: Scores are multiplied by it.
        window: How many of the latest keys a query sees, its own among them; None for all.
        cap: Scores are bent to stay below it, after the scale; None for no cap.

    Returns:
        [batch, seq, heads * head_dim].
    """
    batch, heads, seq, _ = q.shape
    k, v = (np.repeat(x, heads // k.shape[1], axis=1) for x in (k, v))
    scores = bend(q @ k.swapaxes(-1, -2) * scale, cap)
    age = np.subtract.outer(np.arange(seq), np.arange(seq))
    seen = (age >= 0) & (age < (window or seq))
    mixed: Array = softmax(np.where(seen, scores, -np.inf)) @ v
    return mixed.swapaxes(1, 2).reshape(batch, seq, -1)


def softmax(x: Array) -> Array:
    """Over the last axis, shifted so that exp cannot overflow."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    normed: Array = weights / weights.sum(axis=-1, keepdims=True)
    return normed


def bend(x: Array, cap: float | None) -> Array:
    """``cap * tanh(x / cap)``, the soft cap of Gemma 2 (arXiv:2408.00118); x itself without one."""
    return x if cap is None else cap * np.tanh(x / cap)


def split_heads(x: Array, head_dim: int) -> Array:
    """[batch, seq, heads * head_dim] to [batch, heads, seq, head_dim]."""
    return x.reshape(*x.shape[:2], -1, head_dim).transpose(0, 2, 1, 3)
