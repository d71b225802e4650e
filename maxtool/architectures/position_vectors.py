"""Vectors of positions, which are added to those of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.dtype import DType
from maxtool.graph import DerivedWeight, Tensor, Weight, ops
from maxtool.nn import Module

Table: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float32]]
# The slowest wave is so many times as long as the fastest.
BASE = 10000


class PositionEmbedding(Module[[Tensor, Tensor], Tensor]):
    """A vector for each position, behind some that no position has."""

    def __init__(self, weight: Weight, offset: int) -> None:
        self.weight, self.offset = weight, offset

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """``x [batch, seq, hidden]``, which begins at ``position``, with the vectors added.

        With positions ``[batch]`` there is one token in each row.
        """
        weight = self.weight
        table = weight.on(x.device) if isinstance(weight, DerivedWeight) else weight
        position = position + self.offset if self.offset else position
        if position.shape == [1]:
            return ops.add_positions(x, table, position)
        return x + ops.gather(table, position, 0).cast(x.dtype).reshape(x.shape)


def learned(config: DecoderConfig, _context: int, dtype: DType) -> PositionEmbedding:
    """A vector of the checkpoint for each position."""
    rows, offset = config.context_length, config.position_offset
    return PositionEmbedding(Weight("weight", dtype, (offset + rows, config.hidden_size)), offset)


def sinusoidal(config: DecoderConfig, context: int, _dtype: DType) -> PositionEmbedding:
    """Sines of waves of several lengths, and behind them their cosines (Vaswani et al. 2017)."""
    offset, width, padding = config.position_offset, config.hidden_size, config.position_padding
    shape = (offset + context, width)

    def values() -> Table:
        table = np.zeros(shape, np.float32)
        half = width // 2
        # Each number is rounded as transformers does, since an angle is one times a position.
        step = np.float32(-math.log(BASE) / (half - 1))
        frequencies = np.exp((np.arange(half, dtype=np.float32) * step).astype(np.float64))
        angles = np.outer(np.arange(shape[0], dtype=np.float32), frequencies.astype(np.float32))
        table[:, :half], table[:, half : 2 * half] = np.sin(angles), np.cos(angles)
        if padding is not None and padding < len(table):
            table[padding] = 0
        return table

    weight = DerivedWeight("position.weight", DType.float32, shape, values)
    return PositionEmbedding(weight, offset)


# What a configuration calls them.
POSITIONS: Mapping[str, Callable[[DecoderConfig, int, DType], PositionEmbedding]] = {
    "learned": learned,
    "sinusoidal": sinusoidal,
}
