"""Masks of attention in which tokens see those behind them too."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops

# Beside it no score makes a difference in float32, and powers of 2 for those of e stay numbers.
FAR_BELOW = -1e30


def factors(attention_mask: Tensor) -> Tensor:
    """Factors of tokens, ``[batch, seq, 1]`` in float32: 1, and 0 for padding."""
    batch, seq = attention_mask.shape
    return attention_mask.cast(DType.float32).reshape([batch, seq, 1])


def shown(attention_mask: Tensor) -> Tensor:
    """A mask that hides padding: bool ``[batch, 1, 1, seq]`` of ``[batch, seq]``, 1 for a token."""
    batch, seq = attention_mask.shape
    return attention_mask.cast(DType.bool).reshape([batch, 1, 1, seq])


def between(attention_mask: Tensor) -> Tensor:
    """Numbers added to scores by which padding neither is seen nor sees: ``[batch, 1, seq, seq]``.

    A place that sees nothing takes the mean of all.
    """
    batch, seq = attention_mask.shape
    rows = attention_mask.cast(DType.bool).reshape([batch, 1, seq, 1])
    both = ops.logical_and(rows, shown(attention_mask))
    return ops.where(both, Tensor(0.0, DType.float32, both.device), FAR_BELOW)


def near(input_ids: Tensor, reach: int) -> Tensor:
    """A mask that shows each token ``reach`` tokens on either side: bool ``[1, 1, seq, seq]``."""
    seq = input_ids.shape[1]
    places = ops.range(0, seq, dtype=DType.int32, device=input_ids.device)
    rows, columns = places.reshape([1, 1, seq, 1]), places.reshape([1, 1, 1, seq])
    return ops.abs(rows - columns) <= reach
