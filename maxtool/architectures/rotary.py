"""Rotary position embedding: the tables of angles."""

from __future__ import annotations

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Weight


class RotaryTable:
    """Cosine and sine of the angle of each position and pair, computed once when a model is built.

    The angle of pair ``i`` at position ``p`` is ``p / factor * theta ** (-2 i / head_dim)`` (Su et
    al. 2021, with the linear position interpolation of Chen et al. 2023). Frequencies, angles and
    results are rounded to float32 where transformers rounds them, so that both see the same tables.

    This is no module: the tables are derived from the configuration and stand in no checkpoint.

    Args:
        head_dim: The width of a head, even.
        context: How many positions there are.
        theta: The base of the frequencies.
        factor: What positions are divided by.

    Attributes:
        cos: ``[context, head_dim / 2]``, float32.
        sin: The same shape.
    """

    def __init__(self, head_dim: int, context: int, theta: float, factor: float = 1.0) -> None:
        exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        frequencies = np.float32(1) / np.power(np.float32(theta), exponents, dtype=np.float32)
        positions = np.arange(context, dtype=np.float32)
        angles = np.outer(positions, frequencies / np.float32(factor)).astype(np.float32)
        self.cos = _table("rope.cos", np.cos(angles))
        self.sin = _table("rope.sin", np.sin(angles))


def _table(name: str, values: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Weight:
    weight = Weight(name, DType.float32, values.shape)
    weight.bind(values)
    return weight
